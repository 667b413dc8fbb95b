"""Keras layers of federated models; each file contains one public class of the same name.

A class that computes convolutions or matrix products sets `HAS_PRODUCTS = True`. Only such a class gets a mixed
policy, `dtype="mixed_bfloat16"`. Its sublayers without products use its `variable_dtype`.

Two class attributes, tuples of attribute names, define the role of non-trainable variables in federated training:
- `TRACKS` lists running statistics, such as the running averages of `TrackedBatchNormalization`. Each local step
  passes them to the next, the client returns them with its weights, and the server merges them.
- `QUERIED` lists batch statistics, such as the moments of `StaticBatchNormalization`. Local steps discard them; they
  are computed from the data after training.
- All other variables are constants, such as the base of an adapter. A constant has the float type of the weights, is
  sent to a client once, and keeps its initial value. A model whose training would change it is refused.
The state of a random generator belongs to none of these: every step gets a new one, see `Dropout`.

The class attribute `GEOMETRY` declares shapes and weights of a layer by formulas; `recipe.geometry.Geometry` lists its
keys. A recipe is checked against it before the layer is imported: forms and channels, groups, empty outputs, memory. A
formula is a text of arithmetic over the arguments of the layer and the sizes of its input without the batch: `rows`,
`columns`, `channels` of a "map", `positions`, `channels` of "tokens", `positions` of "words", `channels` of any other
input; `inputs` is its shape, `leading` its shape without the last size, `outputs` the shape of the output, and
`product(...)` multiplies the sizes of a shape. Layers after one without `GEOMETRY` have unknown shapes until Keras
builds them.

Modules:

    attention_gate               AttentionGate: the attention branch at the start of DepthFL's exits
    class_token_readout          ClassTokenReadout: selects the class token of a sequence
    dropout                      Dropout whose draws are a function of its key
    embedding                    Embedding: word embeddings and a mask of padding positions
    fast_conv2d/                 Forms of a convolution that train faster than TensorFlow's
    gelu                         GELU: the Gaussian error linear unit
    gru                          GRU: gated recurrent unit with a separate axis for its three gates
    link                         Link: resizes a feature map to the output size of a deeper unit, without parameters
    lora_dense                   LoraDense: a frozen dense layer with a trained low-rank adapter
    lstm                         LSTM: long short-term memory with a separate axis for its four gates
    masked_token_embedding       MaskedTokenEmbedding: token and position embeddings with a row for the mask token
    norm                         Norm: a normalisation selected by one argument, for ablations
    padded_conv2d                PaddedConv2D: convolution padded equally on both sides
    padded_depthwise_conv2d      PaddedDepthwiseConv2D: depthwise convolution with the padding of `PaddedConv2D`
    patch_embedding              PatchEmbedding: an image as a sequence of tokens, one per square of pixels
    position_embedding           PositionEmbedding: a trained offset for each position
    post_activation_block        PostActivationBlock: the residual block of the original ResNet
    pre_activation_block         PreActivationBlock: the residual block of PreResNet
    recurrent/                   Base of recurrent layers
    scaler                       Scaler: keeps the magnitude of activations equal at every width in training
    self_attention               SelfAttention: multi-head self-attention with scaled projections
    separable_block              SeparableBlock: the pair of separable convolutions in DepthFL's exits
    spatial_dropout2d            SpatialDropout2D: dropout of whole channels
    stacked/                     Keras layers that mix channels, for K clients together
    static_batch_normalization   Static batch normalisation (sBN): statistics are computed once, after training
    tracked_batch_normalization  Tracked batch normalisation: running averages of the batch moments are part of a ...
    transformer_block            TransformerBlock: an encoder layer with post-norm or pre-norm
    u_net                        UNet: the encoder and decoder of U-Net, joined by skip connections
"""
