// What the vendors' Node libraries make of a gateway: one JSON line each.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.SDK_NODE + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const url = process.env.GATEWAY_URL, key = process.env.GATEWAY_KEY, model = "m1";
const pixel =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const schema = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };
const say = (client, facts) => console.log(JSON.stringify({ client, ...facts }));

async function anthropic() {
  const Anthropic = (await load("@anthropic-ai/sdk")).default;
  const c = new (Anthropic.Anthropic ?? Anthropic)({ baseURL: url, apiKey: key });
  const tools = [{ name: "bash", input_schema: schema }];
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data: pixel } };
  const messages = [{ role: "user", content: [{ type: "text", text: "look" }, image] }];
  const first = await c.messages.create({ model, max_tokens: 100, messages, tools });
  const call = first.content.find((b) => b.type === "tool_use");
  messages.push({ role: "assistant", content: first.content });
  messages.push({ role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "world" }] });
  let text = "";
  const s = c.messages.stream({ model, max_tokens: 100, messages, tools });
  s.on("text", (t) => (text += t));
  const last = await s.finalMessage();
  say("anthropic", { call: [call.name, call.input], text, usage: [first.usage.input_tokens, last.usage.output_tokens] });
}

async function openai() {
  const OpenAI = (await load("openai")).default;
  const c = new (OpenAI.OpenAI ?? OpenAI)({ baseURL: url + "/v1", apiKey: key });
  const fn = { name: "bash", parameters: schema };
  const input = [{
    role: "user",
    content: [{ type: "input_text", text: "look" }, { type: "input_image", image_url: "data:image/png;base64," + pixel, detail: "auto" }],
  }];
  let tools = [{ type: "function", strict: false, ...fn }];
  const first = await c.responses.create({ model, input, tools });
  const call = first.output.find((o) => o.type === "function_call");
  input.push(...first.output, { type: "function_call_output", call_id: call.call_id, output: "world" });
  let text = "";
  for await (const e of await c.responses.create({ model, input, tools, stream: true }))
    if (e.type === "response.output_text.delta") text += e.delta;
  say("openai responses", { call: [call.name, JSON.parse(call.arguments)], text, usage: [first.usage.input_tokens] });

  tools = [{ type: "function", function: fn }];
  const messages = [{
    role: "user",
    content: [{ type: "text", text: "look" }, { type: "image_url", image_url: { url: "data:image/png;base64," + pixel } }],
  }];
  const reply = (await c.chat.completions.create({ model, messages, tools })).choices[0].message;
  messages.push(reply, { role: "tool", tool_call_id: reply.tool_calls[0].id, content: "world" });
  text = "";
  for await (const chunk of await c.chat.completions.create({ model, messages, tools, stream: true }))
    text += chunk.choices[0].delta.content ?? "";
  say("openai chat", { call: [reply.tool_calls[0].function.name, JSON.parse(reply.tool_calls[0].function.arguments)], text });
}

async function gemini() {
  const { GoogleGenAI } = await load("@google/genai");
  const c = new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: url } });
  const config = { tools: [{ functionDeclarations: [{ name: "bash", parametersJsonSchema: schema }] }] };
  const contents = [{ role: "user", parts: [{ text: "look" }, { inlineData: { mimeType: "image/png", data: pixel } }] }];
  const first = await c.models.generateContent({ model, contents, config });
  const call = first.functionCalls[0];
  contents.push(first.candidates[0].content);
  contents.push({ role: "user", parts: [{ functionResponse: { name: "bash", response: { output: "world" } } }] });
  let text = "";
  for await (const chunk of await c.models.generateContentStream({ model, contents, config })) text += chunk.text ?? "";
  say("google-genai", { call: [call.name, call.args], text, usage: [first.usageMetadata.promptTokenCount] });
}

const only = process.env.SDK_ONLY; // the name of one, or nothing
for (const run of [anthropic, openai, gemini]) if (!only || only === run.name) await run();
