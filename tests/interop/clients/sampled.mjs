// The client of the official TypeScript SDK: what sampled.py is, for what a proxy passes on.
// Runs where `run.py` has installed the SDK: node sampled.mjs SDK_FOLDER SERVER CALCULATION CALLS

import { pathToFileURL } from "node:url";

const [folder, server, calculation, calls] = process.argv.slice(2);
const from = (module) => import(pathToFileURL(`${folder}/dist/esm/${module}`));
const { Client } = await from("client/index.js");
const { StdioClientTransport } = await from("client/stdio.js");
const { StreamableHTTPClientTransport } = await from("client/streamableHttp.js");
const types = await from("types.js");

const turns = JSON.parse(calculation);
const client = new Client({ name: "typescript", version: "1" }, { capabilities: { sampling: { tools: {} } } });

const asked = [];
client.setRequestHandler(types.CreateMessageRequestSchema, ({ params: { messages, tools } }) => {
  const turn = Math.floor(messages.length / 2);
  asked.push(`turn ${turn} with ${tools.length} tools`);
  const answer = { role: "assistant", model: "rules" };
  if (turn === turns.length) return { ...answer, stopReason: "endTurn", content: { type: "text", text: "25" } };
  const use = ([name, input], number) => ({ type: "tool_use", id: `call-${messages.length}-${number}`, name, input });
  return { ...answer, stopReason: "toolUse", content: turns[turn].map(use) };
});

const announced = (schema, told) =>
  new Promise((heard) => client.setNotificationHandler(schema, (message) => heard(told(message))));
const news = {
  offer: announced(types.ToolListChangedNotificationSchema, ({ method }) => [method]),
  touch: announced(types.ResourceUpdatedNotificationSchema, ({ method, params }) => [method, params.uri]),
};

/** Call a tool. A call of `hang` is cancelled when it reports progress. */
async function call(name, args) {
  const controller = new AbortController();
  const options = { signal: controller.signal, onprogress: name === "hang" ? () => controller.abort() : undefined };
  try {
    return (await client.callTool({ name, arguments: args }, undefined, options)).structuredContent;
  } catch (error) {
    if (controller.signal.aborted) return "cancelled";
    throw error;
  }
}

const [command, ...args] = server.startsWith("http") ? [] : JSON.parse(server);
const transport =
  command === undefined ? new StreamableHTTPClientTransport(new URL(server)) : new StdioClientTransport({ command, args });
await client.connect(transport);
const outcomes = [];
for (const [name, given] of JSON.parse(calls)) {
  if (name === "touch") await client.subscribeResource({ uri: given.uri });
  outcomes.push(await call(name, given));
  if (name in news) outcomes.push(await news[name]);
}
await client.close();
process.stdout.write(JSON.stringify({ outcomes, asked }));
