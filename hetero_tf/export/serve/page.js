// The page of `hetero_tf serve`: a form for the model's input, answers of all levels, and the commands of a request.

const MAX_ANSWERS = 20, MAX_BARS = 6, MAX_SHOWN = 300;
const SIGNATURES = ["serve_bytes", "serve_text", "serving_default"];
const FORMS = { serve_bytes: fileForm, serve_text: textForm, serving_default: () => isTable() ? rowForm() : numbersForm() };
// Name and type of a file, by the kind of input.
const FILES = { audio: ["clip.wav", "audio/wav"], images: ["picture.png", "image/png"] };
const PROMPTS = { next_word: "Beginning of a sentence", sequences: "Text", text: "Sentence with <mask>" };
// Messages for an input without a prediction, by its kind.
const INVALID = {
  audio: "This file cannot be read. Use a WAV file without compression.",
  images: "This picture cannot be read. Use PNG or JPEG without transparency.",
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
  const headers = { "Content-Type": "application/json" };
  const options = body && { method: "POST", headers, body: JSON.stringify(body) };
  const response = await fetch(path, options).catch(() => {
    throw new Error("The server does not respond. Check that it runs, and try again.");
  });
  const reply = await response.json();
  if (!response.ok) throw new Error(reply.error);
  return reply;
}

const pathOf = ({ level }) => `v1/models/${encodeURIComponent(level)}`;
const isTable = () => levels[0].input.kind === "table";
const signature = () => SIGNATURES.find(name => name in levels[0].signatures);
const percent = share => `${(100 * share).toFixed(1)} %`;
const number = value => value.toLocaleString("en", { maximumSignificantDigits: 4 });
const quoted = word => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`; // for a shell
const spaced = name => name.replaceAll("_", " ");
const shorten = text => text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)} ...` : text;
const chunk = (values, size) =>
  Array.from({ length: values.length / size }, (_, row) => values.slice(row * size, (row + 1) * size));

// ---- The model ----

async function load() {
  levels = Object.values(await request("v1/models")).sort((one, other) => (other.width ?? 0) - (one.width ?? 0));
  if (!levels.length) throw new Error("No level is served yet. Export the run, then reload this page.");
  const [widest] = levels, [metric] = metricsOf(widest);
  document.title = $("title").textContent = widest.recipe;
  $("warning").textContent = widest.warning ?? "";
  $("score").textContent = metric ? `${metric[1]} ${metric[0]} on the test set, level ${widest.level}` : "";
  const facts = Object.entries(factsOf(widest)).filter(([, text]) => text);
  $("facts").replaceChildren(...facts.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
  const columns = levels.map(about => ({
    level: about.level,
    ...Object.fromEntries(metricsOf(about)),
    width: about.width ?? "",
    parameters: about.parameters.toLocaleString("en"),
    version: about.version,
  }));
  const rows = Object.keys(columns[0]).map((name, row) => {
    const [tag, scope] = row ? ["td", ""] : ["th", "col"];
    const cells = columns.map(column => element(tag, { scope, className: "number" }, column[name] ?? ""));
    return element("tr", {}, element("th", { scope: "row" }, name), ...cells);
  });
  $("levels").replaceChildren(...rows);
}

// Returns [name, text] of each metric, the loss last.
function metricsOf({ measured, units }) {
  return Object.entries(measured)
    .filter(([, value]) => typeof value === "number")
    .map(([name, value]) => [spaced(name), units[name] === "%" ? `${value.toFixed(1)} %` : number(value)])
    .sort(([one], [other]) => (one === "loss") - (other === "loss"));
}

function factsOf({ input, task, classes, class_names: names, data, round, measured, ...about }) {
  const { kind, fields: [{ shape, rate, samples }] } = input;
  const size = rate ? `${number(samples / rate)} seconds at ${number(rate)} Hz` : shape?.join(" × ");
  const noun = task === "regression" ? "Targets" : names || !(kind in PROMPTS) ? "Classes" : "Words";
  return {
    Task: task && spaced(task),
    Input: [spaced(kind), size].filter(Boolean).join(", "),
    [noun]: names ? shorten(names.join(", ")) : classes,
    Data: data?.name,
    Method: about.method_name,
    Training: round && `${round} rounds`,
    Measured: `on ${measured.on}${about.test_examples ? `, ${number(about.test_examples)} test examples` : ""}`,
  };
}

// ---- Forms, by signature ----

function useTemplate(id) {
  $("fields").replaceChildren($(id).content.cloneNode(true));
}

// A picture or clip that is dropped, pasted or selected; a picture can be drawn instead.
function fileForm() {
  const { kind, fields: [{ shape, rate, samples }] } = levels[0].input;
  useTemplate(kind);
  let file = null;
  const preview = $("preview");
  const select = selected => {
    file = selected;
    preview.hidden = !file;
    if (file) preview.src = URL.createObjectURL(file);
  };
  const drawing = kind === "images" ? drawingArea(() => { $("file").value = ""; select(null); }) : null;
  if (drawing) $("pen-label").hidden = shape[2] === 1;
  else $("length").textContent = `the first ${number(samples / rate)} seconds are used`;
  preview.addEventListener("error", () => { preview.hidden = true; });
  $("file").addEventListener("change", () => select($("file").files[0] ?? null));
  document.addEventListener("paste", ({ clipboardData: { files } }) => { if (files.length) select(files[0]); });
  for (const type of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(type, event => {
      event.preventDefault();
      document.querySelector(".drop").classList.toggle("over", type === "dragover");
      if (type === "drop" && event.dataTransfer.files.length) select(event.dataTransfer.files[0]);
    });
  }
  return {
    clear() { select(null); drawing?.clear(); },
    fill({ b64 }) {
      const bytes = Uint8Array.from(atob(b64), letter => letter.charCodeAt(0));
      select(new Blob([bytes], { type: FILES[kind][1] }));
    },
    async read() {
      const blob = file ?? await drawing?.read();
      if (!blob) throw new Error(`Drop or select a ${drawing ? "picture, or draw one," : "WAV file"} first.`);
      const src = URL.createObjectURL(blob), name = file?.name ?? "";
      const view = drawing
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
  const columns = levels[0].input.fields;
  const fields = columns.map(({ codec, categories, fill }) => {
    const required = fill === null;
    if (codec !== "category") return element("input", { required, type: codec === "date" ? "date" : "text" });
    const options = categories.map(name => new Option(name));
    return element("select", { required }, ...(required ? [] : [new Option("(missing)", "")]), ...options);
  });
  const labels = fields.map((field, index) => element("label", {}, columns[index].name, field));
  $("fields").replaceChildren(element("div", { className: "row" }, ...labels));
  return {
    fill(row) {
      const values = columns.length > 1 ? columns.map(({ input }) => row[input]) : [row];
      fields.forEach((field, index) => { field.value = values[index]; });
    },
    read() {
      const texts = fields.map(field => field.value);
      const view = texts.map((text, index) => `${columns[index].name} ${text || "(missing)"}`).join(", ");
      const values = texts.map((text, index) => text && columns[index].codec === "number" && isFinite(text) ? +text : text);
      return { instance: Object.fromEntries(columns.map(({ input }, index) => [input, values[index]])), view };
    },
  };
}

// A text area for each input of "serving_default".
function numbersForm() {
  const inputs = Object.entries(levels[0].signatures.serving_default.inputs).map(([name, { dtype, shape }]) => {
    const field = element("textarea", { rows: 8, className: "numbers", required: true });
    return { name, dtype, sizes: shape.slice(1), field };
  });
  const { kind, fields: [{ channels }] } = levels[0].input, isNamed = inputs.length > 1, isSeries = kind === "series";
  const order = isSeries ? `; a line for each time${channels ? `: ${channels.join(", ")}` : ""}` : "";
  $("fields").replaceChildren(...inputs.map(({ name, dtype, sizes, field }) => {
    const note = `${dtype}, ${sizes.map(size => size ?? "any").join(" × ")}${order}`;
    return element("label", {}, name, element("span", { className: "note" }, note), field);
  }));
  return {
    fill(instance) {
      for (const { name, sizes, field } of inputs) field.value = toLines(isNamed ? instance[name] : instance, sizes);
    },
    read() {
      const values = inputs.map(input => [input.name, toNumbers(input)]);
      const texts = inputs.map(({ name, field }) => shorten(`${name}: ${field.value.trim().replaceAll("\n", " | ")}`));
      const instance = isNamed ? Object.fromEntries(values) : values[0][1];
      return { instance, view: isSeries ? plot(instance) : texts.join("\n") };
    },
  };
}

function toLines(values, sizes) {
  const numbers = [values].flat(Infinity);
  return chunk(numbers, sizes.findLast(size => size > 1) ?? 1).map(row => row.join(", ")).join("\n");
}

function toNumbers({ name, sizes, field }) {
  const numbers = field.value.split(/[\s,;]+/).filter(Boolean).map(Number);
  const expected = sizes.reduce((product, size) => product * size, 1);
  if (numbers.some(Number.isNaN)) throw new Error(`${name} must consist of numbers, separated by commas or spaces.`);
  // A size of null is any number.
  if (expected && numbers.length !== expected) {
    throw new Error(`${name} must have ${expected} numbers. Received: ${numbers.length}`);
  }
  return sizes.slice(1).reduceRight(chunk, numbers);
}

// A line for each channel of a series, each from its lowest to its highest value.
function plot(rows) {
  const lines = rows[0].map((_, channel) => {
    const values = rows.map(row => row[channel]), low = Math.min(...values), range = Math.max(...values) - low || 1;
    return `<polyline points="${values.map((value, time) => `${time},${2 - 2 * (value - low) / range}`).join(" ")}"/>`;
  });
  const attributes = `viewBox="-0.5 -0.1 ${rows.length} 2.2" preserveAspectRatio="none" role="img" aria-label="Series"`;
  return element("div", { className: "plot", innerHTML: `<svg ${attributes}>${lines.join("")}</svg>` });
}

// ---- Answers ----

async function predict() {
  const { instance, view, picture } = await form.read();
  await load();
  const body = { signature_name: signature(), instances: [instance] };
  showCode(body);
  const results = [];
  for (const about of levels) results.push(await ask(about, body));
  const errors = results.flatMap(({ error }) => error ?? []);
  if (errors.length === results.length) throw new Error([...new Set(errors)].join(" "));
  const title = element("h3", { id: `answer-${++count}` }, `Answer ${count}`);
  const sections = await Promise.all(results.map(result => renderResult(result, picture)));
  const figure = element("figure", {}, view), columns = element("div", { className: "results" }, ...sections);
  const article = element("article", {}, title, figure, columns);
  article.setAttribute("aria-labelledby", title.id);
  $("answers").prepend(article);
  if ($("answers").children.length > MAX_ANSWERS) $("answers").lastElementChild.remove();
  $("status").textContent = `Answer ${count}. ${results.map(summarize).join(". ")}`;
}

async function ask(about, body) {
  const began = performance.now();
  try {
    const reply = await request(`${pathOf(about)}:predict`, body), ms = performance.now() - began;
    return { level: about.level, ms, ...interpret(reply.predictions[0], about) };
  } catch (error) {
    return { level: about.level, error: error.message };
  }
}

// A sentence for screen readers.
function summarize({ level, error, headline, groups = [], numbers = [] }) {
  const likely = groups.map(({ bars }) => {
    const [name, share] = bars.reduce((best, bar) => bar[1] > best[1] ? bar : best);
    return `${groups.length === 1 && headline || name} ${percent(share)}`;
  });
  return `Level ${level}: ${error ?? [...likely, ...numbers.map(pair => pair.join(" "))].join(", ")}`;
}

// Returns the prediction of a task: a headline, groups of bars [name, share, class], numbers [name, text], or a map.
function interpret(prediction, about) {
  const { class: predicted, labels, lengths, next_words, next_probabilities, probabilities, values } = prediction;
  if (prediction.is_mask) return interpretMasks(prediction);
  const name = index => about.class_names?.[index] ?? String(index);
  const bars = shares => shares.map((share, index) => [name(index), share, index]);
  const sorted = shares => bars(shares).sort((one, other) => other[1] - one[1]).slice(0, MAX_BARS);
  // An invalid input has the numbers null and the classes and labels -1.
  const [output] = [values ?? labels ?? predicted].flat(3);
  if (output === null || output === -1 && !values || lengths === 0) {
    throw new Error(INVALID[about.input.kind] ?? "The input is invalid: a number is outside the range of its input.");
  }
  if (next_words) {
    const words = next_words.map((word, rank) => [word, next_probabilities[rank]]);
    return { headline: next_words[0], groups: [{ bars: words }] };
  }
  if (values) return { numbers: values.map((value, index) => [name(index), number(value)]) };
  if (labels) {
    const present = labels.flatMap((label, index) => label ? name(index) : []);
    return { headline: present.join(", ") || "no label", groups: [{ bars: sorted(probabilities) }] };
  }
  if (Array.isArray(predicted)) {
    const pixels = predicted.flat(), counts = probabilities[0][0].map(() => 0);
    for (const pixel of pixels) counts[pixel]++;
    const shares = sorted(counts.map(pixelCount => pixelCount / pixels.length)).filter(([, share]) => share);
    return { map: predicted, groups: [{ title: "share of the pixels", bars: shares }] };
  }
  if (!probabilities) return { numbers: [["outputs", shorten(JSON.stringify(prediction))]] };
  return { headline: name(predicted), groups: [{ bars: (about.task === "ordinal" ? bars : sorted)(probabilities) }] };
}

function interpretMasks({ is_mask, topk_tokens, topk_probabilities }) {
  const groups = is_mask.flatMap((isMask, position) => isMask ? {
    title: `word ${position + 1}`,
    bars: topk_tokens[position].map((word, rank) => [word, topk_probabilities[position][rank]]),
  } : []);
  if (!groups.length) throw new Error("The sentence has no <mask>. Write <mask> for a word to predict.");
  return { headline: groups.map(({ bars }) => bars[0][0]).join(", "), groups };
}

async function renderResult({ level, ms, error, headline, groups = [], numbers = [], map }, picture) {
  const time = element("span", {}, error ? "" : `${ms.toFixed(1)} ms`);
  const section = element("section", {}, element("h4", {}, `Level ${level}`, time));
  if (error) section.append(element("p", { className: "error" }, error));
  if (headline) section.append(element("p", { className: "headline" }, headline));
  for (const [name, text] of numbers) {
    section.append(element("p", { className: "note" }, name), element("p", { className: "headline" }, text));
  }
  if (map) section.append(await overlay(picture, map));
  for (const { title, bars } of groups) {
    if (title) section.append(element("p", { className: "note" }, title));
    const items = bars.map(([name, share, label]) => {
      const item = element("li", {}, element("span", {}, name), element("span", {}, percent(share)));
      item.style.setProperty("--share", share);
      if (map) item.style.setProperty("border-left", `.6rem solid rgb(${colorOf(label)})`);
      return item;
    });
    section.append(element("ol", { className: "bars" }, ...items));
  }
  return section;
}

// The colors of `predict --maps`.
const colorOf = label => [0, 1, 2].map(channel => (label >> channel & 1) << 7 | (label >> channel + 3 & 1) << 6);

// A picture under the map of its classes.
async function overlay(blob, map) {
  const picture = await createImageBitmap(blob), size = [map[0].length, map.length];
  const pixels = new Uint8ClampedArray(map.flat().flatMap(label => [...colorOf(label), 255]));
  const colors = new OffscreenCanvas(...size);
  colors.getContext("2d").putImageData(new ImageData(pixels, ...size), 0, 0);
  const width = 224, height = Math.round(width * picture.height / picture.width);
  const canvas = element("canvas", { width, height, role: "img", ariaLabel: "Picture under the map of its classes" });
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0, width, height);
  Object.assign(context, { imageSmoothingEnabled: false, globalAlpha: 0.5 });
  context.drawImage(colors, 0, 0, width, height);
  return canvas;
}

// ---- Commands that send a request to the widest level; a picture or clip is read from a file ----

function showCode({ signature_name, instances: [instance] }) {
  const url = new URL(`${pathOf(levels[0])}:predict`, location.href).href;
  const isFile = signature_name === "serve_bytes";
  const file = isFile && FILES[levels[0].input.kind][0];
  const begin = `{"signature_name": "${signature_name}", "instances": [`;
  const json = `${begin}${JSON.stringify(instance)}]}`;
  $("curl").textContent = isFile
    ? `(printf '${begin}{"b64": "'; base64 < ${file} | tr -d '\\n'; printf '"}]}') |\n  curl -d @- ${quoted(url)}`
    : `curl -d ${quoted(json)} ${quoted(url)}`;
  const bytes = `{"b64": base64.b64encode(open("${file}", "rb").read()).decode()}`;
  $("python").textContent = `import ${isFile ? "base64\nimport " : ""}json
import urllib.request

example = ${isFile ? bytes : JSON.stringify(instance)}
body = json.dumps(${begin}example]})
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

const getExample = () => request(`${pathOf(levels[0])}/example`);

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
    $("status").textContent = "Copied.";
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
