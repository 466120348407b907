// A host on the client of the official TypeScript SDK, for `mcp-host doctor`: node doctor.mjs SDK_FOLDER CAPABILITIES URL
// CAPABILITIES are as in doctor.py. Calls the tool until the check-up is complete.

import { pathToFileURL } from "node:url";

const [folder, capabilities, url] = process.argv.slice(2);
const from = (module) => import(pathToFileURL(`${folder}/dist/esm/${module}`));
const { Client } = await from("client/index.js");
const { StreamableHTTPClientTransport } = await from("client/streamableHttp.js");
const { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema, McpError } = await from("types.js");

const MOST_CALLS = 20;
const HELLO = { role: "assistant", model: "a-model", stopReason: "endTurn", content: { type: "text", text: "Hello." } };
const USES = ["Paris", "Oslo"].map((city) => ({ type: "tool_use", id: city, name: "get_weather", input: { city } }));
const FILLED_IN = {
  text: "abc",
  email: "a@b.example",
  uri: "https://a.example/",
  date: "2026-11-22",
  "date-time": "2026-11-22T09:30:00Z",
  number: 1.5,
  integer: 2,
  boolean: true,
  choice: "red",
  "titled-choice": "r",
  choices: ["red"],
  "titled-choices": ["g"],
};
const OFFERED = {
  all: { sampling: { tools: {} }, elicitation: { form: {}, url: {} }, roots: {} },
  plain: { sampling: {} },
  none: {},
};

const client = new Client({ name: "typescript", version: "1" }, { capabilities: OFFERED[capabilities] });

if (capabilities !== "none") client.setRequestHandler(CreateMessageRequestSchema, async ({ params }, { signal }) => {
  const said = JSON.stringify(params.messages);
  if (said.includes("REJECT")) throw new McpError(-1, "User rejected sampling request");
  if (said.includes("one hundred")) await new Promise((ended) => signal.addEventListener("abort", ended));
  return params.toolChoice?.mode === "required" ? { ...HELLO, stopReason: "toolUse", content: USES } : HELLO;
});

if (capabilities === "all") {
  client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [{ uri: "file:///home" }] }));
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    if (params.mode === "url") return { action: "accept" };
    if (params.message.includes("decline")) return { action: "decline" };
    if (params.message.includes("without an answer")) return { action: "cancel" };
    const fields = Object.entries(params.requestedSchema.properties);
    const content = fields.map(([name, field]) => [name, field.default ?? FILLED_IN[name] ?? "x"]);
    return { action: "accept", content: Object.fromEntries(content) };
  });
}

await client.connect(new StreamableHTTPClientTransport(new URL(url)));
for (let calls = 0; calls < MOST_CALLS; calls++) {
  const { structuredContent } = await client.callTool({ name: "check_host", arguments: {} });
  if (structuredContent.complete) break;
}
await client.close();
