// A server on the official TypeScript SDK that offers the same in both eras: what `both_eras.py` offers, too.
// Runs where `run.py` has installed the SDK: node both_eras.mjs stdio|http|stateless|modern PORT NODE_MODULES MARK

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { text as toText } from "node:stream/consumers";

const [transport, port, modules] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const sdk = require("@modelcontextprotocol/server");
const { serveStdio } = require("@modelcontextprotocol/server/stdio");
const { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } = require("@modelcontextprotocol/node");
const { fromJsonSchema, inputRequired, inputResponse } = sdk;

const MAX_TURNS = 12; // of the model, before the server gives up
const HOUR = { ttlMs: 3_600_000, cacheScope: "public" };

const OPERATIONS = { add: (a, b) => a + b, multiply: (a, b) => a * b };
const PAIR = { type: "object", properties: { a: { type: "number" }, b: { type: "number" } }, required: ["a", "b"] };
const NAMES = [...Object.keys(OPERATIONS), ...Array.from({ length: 14 }, (_, number) => `keep${number}`)];
const TOOLS = NAMES.map((name) => ({
  name,
  description: `${name[0].toUpperCase()}${name.slice(1)} two numbers`,
  inputSchema: PAIR,
}));

const codec = sdk.createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)), ttlSeconds: 600 });
const cancellations = new Map(); // by the name of a call of `hang`
const offered = new Set(); // the names of the tools that `offer` has added
let notify; // the streams of `subscriptions/listen`, over HTTP: over stdio the server instance feeds its own

const text = (words) => ({ type: "text", text: words });
const user = (words) => [{ role: "user", content: text(words) }];
const report = (value) => ({ content: [text(JSON.stringify(value))], structuredContent: value });
const result = (value) => report({ result: value });
const object = (properties) => ({ type: "object", properties, required: Object.keys(properties) });
const strings = (...names) => object(Object.fromEntries(names.map((name) => [name, { type: "string" }])));

// What the client is asked for

const ORDER = object({ size: { type: "string" }, count: { type: "integer", minimum: 1, maximum: 9 } });

const ask = {
  order: (what) => inputRequired.elicit({ message: `Which ${what}?`, requestedSchema: ORDER }),
  signature: (message) => inputRequired.elicit({ message, requestedSchema: strings("name") }),
  words: (question) => inputRequired.createMessage({ messages: user(question), maxTokens: 100 }),
  turn: (messages) =>
    inputRequired.createMessage({
      messages,
      maxTokens: 500,
      systemPrompt: "Use the calculator.",
      tools: TOOLS,
      toolChoice: { mode: "auto" },
    }),
};

const outcome = ({ action, content }) => (action === "accept" ? { action, content } : { action });

// The tools

/** Have the client's model answer with this server's calculator; report its answers, and what was run for them. */
async function calculate({ question }, { mcpReq }) {
  const dialogue = mcpReq.requestState() ?? { messages: user(question), answers: [], ran: {} };
  const turn = inputResponse(mcpReq.inputResponses, "turn");
  if (turn.kind === "sampling" && take(turn.result, dialogue)) {
    return report({ answers: dialogue.answers, ran: dialogue.ran });
  }
  const inputRequests = { turn: ask.turn(dialogue.messages) };
  return inputRequired({ inputRequests, requestState: await codec.mint(dialogue) });
}

/** Add an answer of the model to the dialogue. Returns whether it is over with that. */
function take(answer, { messages, answers, ran }) {
  answers.push(answer);
  const uses = [answer.content].flat().filter((block) => block.type === "tool_use");
  if ((answer.stopReason === "toolUse") !== uses.length > 0) throw new Error(`stopReason ${answer.stopReason}`);
  if (answers.length === MAX_TURNS) throw new Error(`no end after ${MAX_TURNS} turns`);
  for (const { id, name, input } of uses) ran[id] = String(OPERATIONS[name](input.a, input.b));
  const results = uses.map(({ id }) => ({ type: "tool_result", toolUseId: id, content: [text(ran[id])] }));
  messages.push({ role: "assistant", content: answer.content }, { role: "user", content: results });
  return uses.length === 0;
}

/** Have the client's model answer, without tools. */
function summarize({ text: words }, { mcpReq }) {
  const summary = inputResponse(mcpReq.inputResponses, "summary");
  if (summary.kind === "sampling") return report(summary.result);
  return inputRequired({ inputRequests: { summary: ask.words(words) } });
}

/** Ask the user. */
function order({ what }, { mcpReq }) {
  const answer = inputResponse(mcpReq.inputResponses, "order");
  if (answer.kind === "elicit") return report(outcome(answer));
  return inputRequired({ inputRequests: { order: ask.order(what) } });
}

/** Ask for all three kinds of input at once. */
function gather({ what }, { mcpReq }) {
  const given = (key) => inputResponse(mcpReq.inputResponses, key);
  const answer = given("order");
  if (answer.kind === "elicit") {
    return report({ order: outcome(answer), opinion: given("opinion").result.content, roots: given("roots").roots });
  }
  const inputRequests = {
    order: ask.order(what),
    opinion: ask.words(`Is ${what} any good?`),
    roots: inputRequired.listRoots(),
  };
  return inputRequired({ inputRequests });
}

/** Report progress from 1 to *to*, with a line of log each. */
async function count({ to }, { mcpReq }) {
  const progressToken = mcpReq._meta?.progressToken;
  for (let step = 1; step <= to; step++) {
    if (progressToken !== undefined) {
      const params = { progressToken, progress: step, total: to, message: `step ${step}` };
      await mcpReq.notify({ method: "notifications/progress", params });
    }
    await mcpReq.log("info", `at ${step}`);
  }
  return result(to);
}

/** Say it as often as that. */
function repeat({ words, times }) {
  return result(words.repeat(times));
}

/** Report that it has begun, and never end by itself. */
async function hang({ name }, { mcpReq: { _meta, notify, signal } }) {
  const params = { progressToken: _meta?.progressToken, progress: 1 };
  await notify({ method: "notifications/progress", params });
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
  cancellation(name).resolve();
  throw signal.reason;
}

/** Wait until the call of `hang` under that name is cancelled. */
async function cancellationOf({ name }) {
  await cancellation(name).promise;
  return result(name);
}

function cancellation(name) {
  if (!cancellations.has(name)) {
    const made = {};
    made.promise = new Promise((resolve) => (made.resolve = resolve));
    cancellations.set(name, made);
  }
  return cancellations.get(name);
}

const TOOLBOX = [
  ["calculate", strings("question"), calculate],
  ["summarize", strings("text"), summarize],
  ["order", strings("what"), order],
  ["gather", strings("what"), gather],
  ["count", object({ to: { type: "integer" } }), count],
  ["repeat", object({ words: { type: "string" }, times: { type: "integer" } }), repeat],
  ["hang", strings("name"), hang],
  ["cancellation_of", strings("name"), cancellationOf],
  ["measure", object({ region: { type: "string", "x-mcp-header": "Region" } }), ({ region }) => result(region)],
  ["fail", strings(), fail],
];

function fail() {
  throw new Error("as asked");
}

/** The tools that depend on which instance serves them: the SDK makes one for each connection, or for each request. */
function addTools(server, era, subscribed) {
  const add = (name, schema, handler) =>
    server.registerTool(name, { inputSchema: fromJsonSchema(schema) }, handler);
  const announced = notify === undefined || era === "legacy"; // by the instance itself, as soon as it changes
  TOOLBOX.forEach((tool) => add(...tool));
  offered.forEach((name) => add(name, strings(), fail));
  add("told", strings(), (_, context) => report(toldBy(server.server, era, context)));
  add("offer", strings("name"), ({ name }) => {
    offered.add(name);
    if (announced) add(name, strings(), fail);
    else notify.toolsChanged();
    return result(name);
  });
  add("touch", strings("uri"), async ({ uri }) => {
    if (!announced) notify.resourceUpdated(uri);
    else if (era === "modern" || subscribed.has(uri)) await server.server.sendResourceUpdated({ uri });
    return result(uri);
  });
}

/** What the client said of itself. */
function toldBy(server, era, { mcpReq }) {
  const said = (key) => mcpReq.envelope[`io.modelcontextprotocol/${key}`];
  return era === "legacy"
    ? {
        version: server.getNegotiatedProtocolVersion(),
        client: server.getClientVersion(),
        capabilities: server.getClientCapabilities(),
      }
    : { version: said("protocolVersion"), client: said("clientInfo"), capabilities: said("clientCapabilities") };
}

// Resources and prompts

/** Have the user sign, and go on with the name. */
function signed(question, { mcpReq }, goOn) {
  const signature = inputResponse(mcpReq.inputResponses, "signature");
  if (signature.kind === "elicit") return goOn(signature.content.name);
  return inputRequired({ inputRequests: { signature: ask.signature(question) } });
}

/** Offer the resources. In *subscribed* are kept those that a client which shakes hands wants to hear of. */
function addResources(server, subscribed) {
  const template = (pattern) => new sdk.ResourceTemplate(pattern, { list: undefined });
  const contents = (uri, words) => ({ contents: [{ uri: uri.href, mimeType: "text/plain", text: words }] });
  server.registerResource("note", template("note://{name}"), {}, (uri, { name }) => {
    if (name !== "today") throw new sdk.ResourceNotFoundError(uri.href);
    return contents(uri, "Buy milk.");
  });
  server.registerResource("letter", template("letter://{to}"), {}, (uri, { to }, context) =>
    signed(`Sign the letter to ${to}?`, context, (name) => contents(uri, `Dear ${to}, yours, ${name}`)),
  );
  server.server.setRequestHandler("resources/subscribe", ({ params }) => (subscribed.add(params.uri), {}));
  server.server.setRequestHandler("resources/unsubscribe", ({ params }) => (subscribed.delete(params.uri), {}));
}

function addPrompts(server) {
  const spoken = (words) => ({ messages: user(words) });
  const schema = (...names) => ({ argsSchema: fromJsonSchema(strings(...names)) });
  server.registerPrompt("greeting", schema("name"), ({ name }) => spoken(`Greet ${name}.`));
  server.registerPrompt("ode", schema("to"), ({ to }, context) =>
    signed(`Sign the ode to ${to}?`, context, (name) => spoken(`An ode to ${to} by ${name}.`)),
  );
}

// Serving

function build({ era }) {
  const server = new sdk.McpServer(
    { name: "both-eras", version: "1.0.0" },
    {
      instructions: "For interoperability tests.",
      capabilities: { logging: {}, resources: { subscribe: true } },
      requestState: { verify: codec.verify },
      inputRequired: { maxRounds: MAX_TURNS },
      cacheHints: { "tools/list": HOUR, "resources/read": HOUR },
    },
  );
  const subscribed = new Set();
  addTools(server, era, subscribed);
  addResources(server, subscribed);
  addPrompts(server);
  return server;
}

/** Keep a session for each client that shakes hands, which the SDK leaves to its users. */
function withSessions(modern) {
  const sessions = new Map();
  return async function serve(request, response) {
    const body = request.method === "POST" ? JSON.parse(await toText(request)) : undefined;
    if (!(await sdk.isLegacyRequest(await toWebRequest(request, body)))) return modern(request, response, body);
    const known = sessions.get(request.headers["mcp-session-id"]);
    if (known !== undefined) return known.handleRequest(request, response, body);
    const opened = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, opened),
      onsessionclosed: (id) => sessions.delete(id),
    });
    await build({ era: "legacy" }).connect(opened);
    return opened.handleRequest(request, response, body);
  };
}

function serveHttp() {
  const handler = sdk.createMcpHandler(build, { legacy: transport === "stateless" ? "stateless" : "reject" });
  const serve = transport === "http" ? withSessions(toNodeHandler(handler)) : toNodeHandler(handler);
  notify = handler.notify;
  createServer((request, response) => {
    console.log(`heard ${request.headers["mcp-method"] ?? request.method}`);
    return serve(request, response);
  }).listen(Number(port), "127.0.0.1", () => console.log(`listening on ${port}`));
}

if (transport === "stdio") serveStdio(build);
else serveHttp();
