// A server written with the official TypeScript SDK, whose tool asks for sampling with tools.
// Runs where `run.py` has installed the SDK: node typescript_sdk.mjs SDK_FOLDER MARK

import { pathToFileURL } from "node:url";

const from = (module) => import(pathToFileURL(`${process.argv[2]}/dist/esm/${module}`));
const { Server } = await from("server/index.js");
const { StdioServerTransport } = await from("server/stdio.js");
const { CallToolRequestSchema, ListToolsRequestSchema } = await from("types.js");

const OPERATIONS = { add: (a, b) => a + b, multiply: (a, b) => a * b };
const PAIR = { type: "object", properties: { a: { type: "number" }, b: { type: "number" } }, required: ["a", "b"] };
const TOOLS = Object.keys(OPERATIONS).map((name) => ({ name, description: `${name} two numbers`, inputSchema: PAIR }));
const MAX_TURNS = 8; // of the model, before the server gives up

const server = new Server({ name: "typescript-sdk", version: "1.0.0" }, { capabilities: { tools: {} } });

server.setRequestHandler(ListToolsRequestSchema, () => ({
  tools: [{ name: "calculate", inputSchema: { type: "object", properties: { question: { type: "string" } } } }],
}));

server.setRequestHandler(CallToolRequestSchema, async ({ params }) => {
  const messages = [{ role: "user", content: { type: "text", text: params.arguments.question } }];
  const answers = [];
  while (answers.length < MAX_TURNS) {
    const answer = await server.createMessage({ messages, maxTokens: 500, tools: TOOLS, toolChoice: { mode: "auto" } });
    answers.push(answer);
    const uses = [answer.content].flat().filter((block) => block.type === "tool_use");
    if (uses.length === 0) return report({ capabilities: server.getClientCapabilities(), answers });
    messages.push({ role: "assistant", content: answer.content }, { role: "user", content: uses.map(resultOf) });
  }
  throw new Error(`no end after ${MAX_TURNS} turns`);
});

function resultOf({ id, name, input }) {
  const text = String(OPERATIONS[name](input.a, input.b));
  return { type: "tool_result", toolUseId: id, content: [{ type: "text", text }] };
}

function report(received) {
  return { content: [{ type: "text", text: JSON.stringify(received) }], structuredContent: received };
}

await server.connect(new StdioServerTransport());
