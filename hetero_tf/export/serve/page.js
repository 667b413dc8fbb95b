// The page of `hetero_tf serve`: a form for the model's input, the answers of all levels, and the commands of a request.

const MAX_ANSWERS = 20, MAX_BARS = 6, MAX_SHOWN = 300;
const SIGNATURES = ["serve_bytes", "serve_text", "serve_rows", "serving_default"];
const FORMS = { serve_bytes: fileForm, serve_text: textForm, serve_rows: rowForm, serving_default: numbersForm };
// Name and type of a file, by the kind of input.
const FILES = { audio: ["clip.wav", "audio/wav"], images: ["picture.png", "image/png"] };
const PROMPTS = { next_word: "Beginning of a sentence", sequences: "Text", text: "Sentence with <mask>" };
// Messages for an input without a prediction, by its kind.
const INVALID = {
  audio: "This file cannot be read. Use a WAV file without compression.",
  images: "This picture cannot be read. Use PNG, JPEG, BMP, GIF or WebP without transparency.",
  next_word: "The text has no word.",
  sequences: "The text has no word.",
  table: "A value is not a valid number, date or category of its column.",
};

const $ = id => document.getElementById(id);
let levels = []; // summaries of the newest version of each level, the widest first; see /v1/models
let form; // {fill(instance), read() -> {instance, view, picture}, clear()}
let count = 0;

function element(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

async function request(path, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, options).catch(() => {
    throw new Error("The server does not respond. Check that it runs, and try again.");
  });
  const reply = await response.json();
  if (!response.ok) throw new Error(reply.error);
  return reply;
}

// ---- The model ----

const signature = () => SIGNATURES.find(name => name in levels[0].signatures);
const percent = share => `${(100 * share).toFixed(1)} %`;
const number = value => value.toLocaleString("en", { maximumSignificantDigits: 4 });

function metricsOf(about) {
  return Object.entries(about.measured).filter(([, value]) => typeof value === "number")
    .map(([name, value]) => [name.replaceAll("_", " "), about.units[name] === "%" ? `${value.toFixed(1)} %` : number(value)])
    .sort(([one], [other]) => (one === "loss") - (other === "loss"));
}

async function load() {
  levels = Object.values(await request("v1/models")).sort((one, other) => (other.width ?? 0) - (one.width ?? 0));
  if (!levels.length) throw new Error("No level is served yet. Export the run, then reload this page.");
  const about = levels[0], metrics = metricsOf(about);
  document.title = $("title").textContent = about.recipe;
  $("warning").textContent = about.warning ?? "";
  $("score").textContent = metrics.length ? `${metrics[0][1]} ${metrics[0][0]} on the test set, level ${about.level}` : "";
  const facts = {
    Task: about.task?.replaceAll("_", " "),
    Input: describeInput(about.input),
    [about.task === "regression" ? "Targets" : about.input.kind in PROMPTS && !about.class_names ? "Words" : "Classes"]:
      about.class_names ? shorten(about.class_names.join(", ")) : about.classes,
    Data: about.data?.name,
    Method: about.method && Object.entries(about.method).map(([key, name]) => `${key} ${name}`).join(", "),
    Training: about.round && `${about.round} rounds`,
    Measured: `on ${about.measured.on}`,
  };
  const known = Object.entries(facts).filter(([, text]) => text);
  $("facts").replaceChildren(...known.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
  const columns = levels.map(level => ({
    level: level.level, ...Object.fromEntries(metricsOf(level)), width: level.width ?? "",
    parameters: level.parameters.toLocaleString("en"), version: level.version,
  }));
  $("levels").replaceChildren(...Object.keys(columns[0]).map((name, row) => element("tr", {}, element("th", { scope: "row" }, name),
    ...columns.map(column => element(row ? "td" : "th", { scope: row ? "" : "col", className: "number" }, column[name] ?? "")))));
}

function describeInput({ kind, height, width, channels, shape, rate }) {
  if (rate) return `audio, ${number(shape[0] / rate)} seconds at ${number(rate)} Hz`;
  const sizes = height ? [height, width, channels] : shape ?? [];
  return [kind.replaceAll("_", " "), ...(sizes.length ? [sizes.join(" × ")] : [])].join(", ");
}

// ---- Forms, by signature ----

function useTemplate(id) {
  $("fields").replaceChildren($(id).content.cloneNode(true));
}

// A picture or clip; a picture can be drawn.
function fileForm() {
  const { kind, channels, shape, rate } = levels[0].input;
  useTemplate(kind);
  let file = null;
  const preview = $("preview"), drop = document.querySelector(".drop");
  const select = selected => {
    file = selected;
    preview.hidden = !file;
    if (file) preview.src = URL.createObjectURL(file);
  };
  const drawing = kind === "images" ? drawingArea(() => { $("file").value = ""; select(null); }) : null;
  if (drawing) $("pen-label").hidden = channels === 1;
  else $("length").textContent = `the first ${number(shape[0] / rate)} seconds are used`;
  preview.addEventListener("error", () => { preview.hidden = true; });
  $("file").addEventListener("change", () => select($("file").files[0] ?? null));
  for (const type of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(type, event => {
      event.preventDefault();
      drop.classList.toggle("over", type === "dragover");
      if (type === "drop" && event.dataTransfer.files.length) select(event.dataTransfer.files[0]);
    });
  }
  return {
    clear() { select(null); drawing?.clear(); },
    fill({ b64 }) { select(new Blob([Uint8Array.from(atob(b64), letter => letter.charCodeAt(0))], { type: FILES[kind][1] })); },
    async read() {
      const blob = file ?? await drawing?.read();
      if (!blob) throw new Error(kind === "images" ? "Draw, drop or select a picture first." : "Drop or select a WAV file first.");
      const src = URL.createObjectURL(blob), name = file?.name ?? "";
      const view = kind === "images"
        ? element("img", { className: "picture", src, alt: `Picture ${name}` })
        : element("audio", { controls: true, src, ariaLabel: `Clip ${name}` });
      return { instance: { b64: await base64(blob) }, view, picture: blob };
    },
  };
}

function base64(blob) {
  const reader = new FileReader();
  return new Promise(resolve => {
    reader.onload = () => resolve(reader.result.split(",")[1] ?? "");
    reader.readAsDataURL(blob);
  });
}

function drawingArea(onDraw) {
  const canvas = $("canvas"), context = canvas.getContext("2d");
  let last = null, isEmpty = true;
  const clear = () => {
    isEmpty = true;
    context.fillStyle = "#000";
    context.fillRect(0, 0, canvas.width, canvas.height);
  };
  canvas.addEventListener("pointerdown", event => {
    canvas.setPointerCapture(event.pointerId);
    last = [event.offsetX, event.offsetY];
    onDraw();
  });
  canvas.addEventListener("pointerup", () => { last = null; });
  canvas.addEventListener("pointermove", event => {
    if (!last) return;
    Object.assign(context, { strokeStyle: $("pen").value, lineWidth: 20, lineCap: "round" });
    context.beginPath();
    context.moveTo(...last);
    last = [event.offsetX, event.offsetY];
    context.lineTo(...last);
    context.stroke();
    isEmpty = false;
  });
  clear();
  return { clear, read: () => isEmpty ? null : new Promise(resolve => canvas.toBlob(resolve, "image/png")) };
}

function textForm() {
  useTemplate("text");
  $("prompt").textContent = PROMPTS[levels[0].input.kind] ?? "Text";
  const field = $("sentence");
  return {
    fill(text) { field.value = text; },
    read: () => ({ instance: field.value, view: field.value }),
  };
}

function rowForm() {
  const { columns } = levels[0].input;
  const fields = columns.map(({ categories, date, fill }) => {
    const options = [...(fill === undefined ? [] : [new Option("(missing)", "")]), ...categories.map(name => new Option(name))];
    const field = categories.length
      ? element("select", {}, ...options)
      : element("input", { type: date === "ymd" ? "date" : "text", inputMode: date ? "text" : "decimal" });
    return Object.assign(field, { required: fill === undefined });
  });
  const labels = fields.map((field, index) => element("label", {}, columns[index].name, field));
  $("fields").replaceChildren(element("div", { className: "row" }, ...labels));
  return {
    fill(texts) { fields.forEach((field, index) => { field.value = texts[index]; }); },
    read: () => ({
      instance: fields.map(field => field.value),
      view: columns.map(({ name }, index) => `${name} ${fields[index].value || "(missing)"}`).join(", "),
    }),
  };
}

// A text area for each input of "serving_default".
function numbersForm() {
  const inputs = Object.entries(levels[0].signatures.serving_default.inputs)
    .map(([name, { dtype, shape }]) => ({ name, dtype, sizes: shape.slice(1), field: element("textarea", { rows: 8, className: "numbers", required: true }) }));
  $("fields").replaceChildren(...inputs.map(({ name, dtype, sizes, field }) => element(
    "label", {}, name, element("span", { className: "note" }, `${dtype}, ${sizes.map(size => size ?? "any").join(" × ")}`), field)));
  const isNamed = inputs.length > 1;
  return {
    fill(instance) { for (const input of inputs) input.field.value = toLines(input, isNamed ? instance[input.name] : instance); },
    read() {
      const values = inputs.map(input => [input.name, toNumbers(input)]);
      const view = inputs.map(({ name, field }) => `${name}: ${field.value.trim().replaceAll(/\s*\n\s*/g, " | ")}`).join("\n");
      return { instance: isNamed ? Object.fromEntries(values) : values[0][1], view: shorten(view) };
    },
  };
}

const shorten = text => text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)} ...` : text;
function toLines({ sizes }, values) {
  const numbers = [values].flat(Infinity), width = sizes.findLast(size => size > 1) ?? 1;
  return Array.from({ length: numbers.length / width }, (_, row) => numbers.slice(row * width, (row + 1) * width).join(", ")).join("\n");
}

function toNumbers({ name, sizes, field }) {
  const numbers = field.value.split(/[\s,;]+/).filter(Boolean).map(Number);
  const expected = sizes.reduce((product, size) => product * (size ?? 1), 1);
  if (numbers.some(Number.isNaN)) throw new Error(`${name} must consist of numbers, separated by commas or spaces.`);
  if (sizes.every(Boolean) && numbers.length !== expected) throw new Error(`${name} must have ${expected} numbers. Received: ${numbers.length}`);
  return sizes.slice(1).reduceRight((values, size) => Array.from({ length: values.length / size }, (_, row) => values.slice(row * size, (row + 1) * size)), numbers);
}

// ---- Answers ----

async function predict() {
  const { instance, view, picture } = await form.read();
  await load();
  const body = { signature_name: signature(), instances: [instance] };
  showCode(body);
  const results = [];
  for (const about of levels) results.push(await ask(about, body));
  if (results.every(result => result.error)) throw new Error([...new Set(results.map(result => result.error))].join(" "));
  const title = element("h3", { id: `answer-${++count}` }, `Answer ${count}`);
  const sections = await Promise.all(results.map(result => renderResult(result, picture)));
  const article = element("article", {}, title, element("figure", {}, view), element("div", { className: "results" }, ...sections));
  article.setAttribute("aria-labelledby", title.id);
  $("answers").prepend(article);
  if ($("answers").children.length > MAX_ANSWERS) $("answers").lastElementChild.remove();
  $("status").textContent = `Answer ${count}. ${results.map(summarize).join(". ")}`;
}

// A sentence for screen readers.
function summarize({ level, error, groups = [], numbers = [] }) {
  const bars = groups.flatMap(({ bars }) => bars.slice(0, 1)).map(([name, share]) => `${name} ${percent(share)}`);
  return `Level ${level}: ${error ?? [...bars, ...numbers.map(pair => pair.join(" "))].join(", ")}`;
}

async function ask(about, body) {
  const began = performance.now();
  try {
    const reply = await request(`v1/models/${encodeURIComponent(about.level)}:predict`, body);
    return { level: about.level, ms: performance.now() - began, ...interpret(reply.predictions[0], about) };
  } catch (error) {
    return { level: about.level, error: error.message };
  }
}

// Returns the prediction of a task: a headline, groups of bars [name, share, label], numbers [name, value], or a map.
function interpret(prediction, about) {
  const name = label => about.class_names?.[label] ?? String(label);
  const sorted = shares => shares.map((share, label) => [name(label), share, label]).sort((one, other) => other[1] - one[1]);
  const invalid = INVALID[about.input.kind] ?? "The input is invalid: its numbers must be finite and in the range of the training data.";
  const { probabilities, values, labels, class: predicted } = prediction;
  if (prediction.is_mask) return interpretMasks(prediction);
  if (prediction.next_words) {
    if (!prediction.lengths) throw new Error(invalid);
    return { headline: prediction.next_words[0], groups: [{ bars: pairs(prediction.next_words, prediction.next_probabilities) }] };
  }
  if ([values?.[0], labels?.[0] === -1 ? null : 0, [predicted].flat(2)[0] === -1 ? null : 0].includes(null)) throw new Error(invalid);
  if (values) return { headline: values.length > 1 ? "" : number(values[0]), groups: [], numbers: values.map((value, index) => [name(index), number(value)]) };
  if (labels) {
    const present = labels.flatMap((label, index) => label ? [name(index)] : []);
    return { headline: present.join(", ") || "no label", groups: [{ bars: sorted(probabilities) }] };
  }
  if (Array.isArray(predicted)) {
    const pixels = predicted.flat();
    const shares = probabilities[0][0].map((_, label) => pixels.filter(pixel => pixel === label).length / pixels.length);
    return { headline: "", map: predicted, groups: [{ title: "share of the pixels", bars: sorted(shares).filter(([, share]) => share) }] };
  }
  if (probabilities) {
    const bars = about.task === "ordinal" ? probabilities.map((share, label) => [name(label), share]) : sorted(probabilities);
    return { headline: name(predicted), groups: [{ bars }] };
  }
  return { headline: "", groups: [], numbers: [["outputs", shorten(JSON.stringify(prediction))]] };
}

const pairs = (words, shares) => words.map((word, rank) => [word, shares[rank]]);

function interpretMasks({ is_mask, topk_tokens, topk_probabilities }) {
  const positions = is_mask.flatMap((masked, position) => masked ? [position] : []);
  if (!positions.length) throw new Error("The sentence has no <mask>. Write <mask> in place of a word.");
  const groups = positions.map(position => ({ title: `word ${position + 1}`, bars: pairs(topk_tokens[position], topk_probabilities[position]) }));
  return { headline: groups.map(({ bars }) => bars[0][0]).join(", "), groups };
}

async function renderResult({ level, ms, error, headline, groups = [], numbers = [], map }, picture) {
  const section = element("section", {}, element("h4", {}, `Level ${level}`, element("span", {}, error ? "" : `${ms.toFixed(1)} ms`)));
  if (error) section.append(element("p", { className: "error" }, error));
  if (headline) section.append(element("p", { className: "headline" }, headline));
  if (map) section.append(await overlay(picture, map));
  if (numbers.length > 1 || !headline) section.append(...numbers.map(([name, value]) => element("p", {}, `${name}: ${value}`)));
  for (const { title, bars } of groups) {
    const items = bars.slice(0, MAX_BARS).map(([name, share, label]) => {
      const item = element("li", { className: map ? "swatch" : "" }, element("span", {}, name), element("span", {}, percent(share)));
      item.style.setProperty("--share", share);
      if (map) item.style.setProperty("--color", `rgb(${colorOf(label)})`);
      return item;
    });
    if (title) section.append(element("p", { className: "note" }, title));
    section.append(element("ol", { className: "bars" }, ...items));
  }
  return section;
}

// The colors of `predict --maps`.
const colorOf = label => [0, 1, 2].map(channel => (label >> channel & 1) << 7 | (label >> channel + 3 & 1) << 6);

// A picture under the map of its classes.
async function overlay(blob, map) {
  const picture = await createImageBitmap(blob), size = [map[0].length, map.length];
  const colors = new OffscreenCanvas(...size);
  const pixels = new Uint8ClampedArray(map.flat().flatMap(label => [...colorOf(label), 255]));
  colors.getContext("2d").putImageData(new ImageData(pixels, ...size), 0, 0);
  const height = Math.round(224 * picture.height / picture.width);
  const canvas = element("canvas", { width: 224, height, role: "img", ariaLabel: "The picture under the map of its classes" });
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0, 224, height);
  Object.assign(context, { imageSmoothingEnabled: false, globalAlpha: 0.5 });
  context.drawImage(colors, 0, 0, 224, height);
  return canvas;
}

// ---- Commands that send the same request to the widest level; a picture or clip is read from a file ----

function showCode(body) {
  const url = new URL(`v1/models/${encodeURIComponent(levels[0].level)}:predict`, location.href).href;
  const file = FILES[levels[0].input.kind]?.[0], json = JSON.stringify(body), isFile = signature() === "serve_bytes";
  const quote = text => `'${text.replaceAll("'", "'\\''")}'`;
  const [begin, end] = [`{"signature_name": "serve_bytes", "instances": [{"b64": "`, `"}]}`];
  $("curl").textContent = isFile
    ? `(printf '${begin}'; base64 < ${file} | tr -d '\\n'; printf '${end}') |\n  curl --data-binary @- ${url}`
    : `curl -d ${quote(json)} ${url}`;
  const instance = isFile ? `{"b64": base64.b64encode(open("${file}", "rb").read()).decode()}` : JSON.stringify(body.instances[0]);
  $("python").textContent = `import ${isFile ? "base64\nimport " : ""}json
import urllib.request

example = ${instance}
body = json.dumps({"signature_name": "${body.signature_name}", "instances": [example]})
with urllib.request.urlopen("${url}", body.encode()) as response:
    print(json.load(response)["predictions"][0])`;
}

// ---- Events ----

async function attempt(action) {
  $("error").textContent = "";
  $("form").ariaBusy = "true";
  try {
    await action();
  } catch (error) {
    $("error").textContent = error.message;
  }
  $("form").ariaBusy = "false";
}

const getExample = () => request(`v1/models/${encodeURIComponent(levels[0].level)}/example`);

$("form").addEventListener("submit", event => {
  event.preventDefault();
  attempt(predict);
});
$("form").addEventListener("reset", () => {
  $("error").textContent = "";
  form.clear?.();
});
$("fill").addEventListener("click", () => attempt(async () => form.fill((await getExample()).instances[0])));
for (const button of document.querySelectorAll("[data-copy]")) {
  // `navigator.clipboard` requires HTTPS on other hosts than localhost.
  button.addEventListener("click", () => {
    getSelection().selectAllChildren($(button.dataset.copy));
    document.execCommand("copy");
  });
}

attempt(async () => {
  await load();
  form = FORMS[signature()]();
  const example = await getExample(), isLinked = location.hash === "#example";
  showCode(example);
  if (isLinked || signature() !== "serve_bytes") form.fill(example.instances[0]);
  if (isLinked) await predict();
});
