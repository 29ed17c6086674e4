"""Writes a small model with random weights as a GGUF file: model.py FILE."""
import sys

import gguf
import numpy

DIM, HEADS, LAYERS, FF, CONTEXT = 64, 4, 2, 128, 4096
TEMPLATE = """{%- if tools %}Tools:
{%- for t in tools %}
{{ t | tojson }}
{%- endfor %}
A call is <tool_call>
{"name": <name>, "arguments": <object>}
</tool_call>.
{% endif %}
{%- for m in messages %}
{%- if m.role == "tool" %}user: <tool_response>
{{ m.content }}
</tool_response>
{% else %}{{ m.role }}: {{ m.content or "" }}
{%- for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>
{%- endfor %}
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}assistant: {% endif %}"""

# The bytes are only for input. What the model writes is letters, which are text.
tokens = [b"<unk>", b"<s>", b"</s>"] + [b"<0x%02X>" % i for i in range(256)]
kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.BYTE] * 256
said = [bytes([c]) for c in range(33, 127)] + ["\u2581".encode()]
tokens, kinds = tokens + said, kinds + [gguf.TokenType.NORMAL] * len(said)

random = numpy.random.default_rng(7)


def matrix(rows, columns):
    return (random.standard_normal((rows, columns)) / columns**0.5).astype(numpy.float32)


w = gguf.GGUFWriter(sys.argv[1], "llama")
w.add_name("random")
w.add_context_length(CONTEXT)
w.add_embedding_length(DIM)
w.add_block_count(LAYERS)
w.add_feed_forward_length(FF)
w.add_head_count(HEADS)
w.add_layer_norm_rms_eps(1e-5)
w.add_vocab_size(len(tokens))
w.add_tokenizer_model("llama")
w.add_token_list(tokens)
w.add_token_scores([-float(i) for i in range(len(tokens))])
w.add_token_types(kinds)
w.add_unk_token_id(0)
w.add_bos_token_id(1)
w.add_eos_token_id(2)
w.add_chat_template(TEMPLATE)

# The first channel is always positive, so that a weight on it forbids a token.
embedding, output = matrix(len(tokens), DIM), 4 * matrix(len(tokens), DIM)
embedding[:, 0], output[:, 0] = 1, 0
for i, kind in enumerate(kinds):
    if kind != gguf.TokenType.NORMAL and i != 2:
        output[i, 0] = -1000
w.add_tensor("token_embd.weight", embedding)
w.add_tensor("output_norm.weight", numpy.ones(DIM, numpy.float32))
w.add_tensor("output.weight", output)
for n in range(LAYERS):
    into = {"attn_output": (DIM, DIM), "ffn_down": (DIM, FF)}
    others = {"attn_q": (DIM, DIM), "attn_k": (DIM, DIM), "attn_v": (DIM, DIM), "ffn_gate": (FF, DIM), "ffn_up": (FF, DIM)}
    for name, shape in (into | others).items():
        m = matrix(*shape)
        if name in into:
            m[0] = 0
        w.add_tensor(f"blk.{n}.{name}.weight", m)
    for name in ("attn_norm", "ffn_norm"):
        w.add_tensor(f"blk.{n}.{name}.weight", numpy.ones(DIM, numpy.float32))
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
