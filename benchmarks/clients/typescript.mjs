// @modelcontextprotocol/client on node, as its documentation uses it. Performs the same operations as drive.py.
// Runs as a copy beside the package's node_modules: "node typescript.mjs" takes jobs on stdin, one a line;
// "node typescript.mjs import" only measures the import.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const LINE = "The quick brown fox jumps over the lazy dog, and says so in plain words.\n";
const NAME = "lean";
const TOOLS = ["echo", "ask", "count", "text"];
const TEXT_SHARE = 0.97; // as in job.py
const AT_ONCE = 64; // as in drive.py
const PAGE = 4096; // of the sizes in /proc/self/statm

let numbers = 0;
let sampled = 0;
let sdk;
let kind, server, operations, warmUp, inFlight, tools, messages, size; // the job

const resident = () => Number(readFileSync("/proc/self/statm", "utf8").split(" ")[1]) * PAGE;

// The memory of sessions is measured in the heap: the size of the process changes by more than that at random.
function heap() {
  gc();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const answer = (tools, messages) => `It is Paris. I was given ${tools} tools and ${messages} messages.`;

function expect(got, expected) {
  const [one, other] = [got, expected].map((value) => (typeof value === "string" ? value : JSON.stringify(value)));
  if (one !== other) throw new Error(`got ${one.slice(0, 60)} instead of ${other.slice(0, 60)}`);
}

// Made once for each size, so that making it is not measured.
const texts = new Map();
function text() {
  if (!texts.has(size)) texts.set(size, made());
  return texts.get(size);
}

function made() {
  const length = Math.floor(size * TEXT_SHARE);
  return LINE.repeat(Math.floor(length / LINE.length) + 1).slice(0, length);
}

async function open() {
  const { Client, StreamableHTTPClientTransport, StdioClientTransport } = sdk;
  const capabilities = kind === "sample" ? { sampling: { tools: {} } } : {};
  const overHttp = typeof server === "string";
  const stateless = overHttp ? server.includes("/stateless/") : server.at(-1) === "stateless";
  const versionNegotiation = stateless ? { mode: "auto" } : undefined; // by default it speaks 2025-11-25 only
  const client = new Client({ name: "benchmark", version: "1.0.0" }, { capabilities, versionNegotiation });
  if (kind === "sample") {
    client.setRequestHandler("sampling/createMessage", async ({ params }) => {
      sampled++;
      const text = answer(params.tools?.length ?? 0, params.messages.length);
      return { role: "assistant", model: "a-model", content: { type: "text", text }, stopReason: "endTurn" };
    });
  }
  await client.connect(
    overHttp
      ? new StreamableHTTPClientTransport(new URL(server))
      : new StdioClientTransport({ command: server[0], args: server.slice(1) }),
  );
  return client;
}

async function call(client, name, args, onprogress) {
  return (await client.callTool({ name, arguments: args }, { onprogress })).content[0].text;
}

const operation = {
  async echo(client) {
    const words = `Hello, ${numbers++}!`;
    expect(await call(client, "echo", { text: words }), words);
  },
  async sample(client) {
    const before = sampled;
    expect(await call(client, "ask", { tools, messages, times: size }), answer(tools, messages));
    expect(sampled - before, size);
  },
  async progress(client) {
    const reports = [];
    expect(await call(client, "count", { to: size }, ({ progress }) => reports.push(progress)), String(size));
    if (reports.length !== size) throw new Error(`${reports.length} of ${size} progress notifications arrived`);
    expect(reports, reports.toSorted((a, b) => a - b));
  },
  async tools(client) {
    const names = (await client.listTools()).tools.map((tool) => tool.name);
    expect(names, [...TOOLS, ...Array.from({ length: tools - TOOLS.length }, (_, number) => `search_${number}`)]);
  },
  async text(client) {
    expect(await call(client, "text", { size }), text());
  },
};

async function repeat(client, times) {
  let left = times;
  const work = async () => {
    while (left-- > 0) await operation[kind](client);
  };
  await Promise.all(Array.from({ length: inFlight }, work));
}

function now() {
  const { user, system } = process.cpuUsage();
  return [(user + system) / 1e6, performance.now() / 1e3];
}

async function measure(work) {
  gc();
  const [cpu, wall] = now();
  await work();
  const after = now();
  return { cpu: after[0] - cpu, wall: after[1] - wall, memory: resident() };
}

async function runCalls() {
  const client = await open();
  await repeat(client, warmUp);
  const spent = await measure(() => repeat(client, operations));
  await client.close();
  return spent;
}

async function runConnects() {
  const connect = async (times) => {
    for (let number = 0; number < times; number++) {
      const client = await open();
      expect(client.getServerVersion().name, NAME);
      await client.close();
    }
  };
  await connect(warmUp);
  return measure(() => connect(operations));
}

async function hold(sessions) {
  const clients = [];
  let left = sessions;
  const work = async () => {
    while (left-- > 0) {
      const client = await open();
      expect(client.getServerVersion().name, NAME);
      clients.push(client);
    }
  };
  const start = now();
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const opened = now();
  const [memory, looked] = [heap(), now()];
  await Promise.all(clients.map((client) => client.close()));
  const end = now();
  const [cpu, wall] = [0, 1].map((clock) => end[clock] - start[clock] - (looked[clock] - opened[clock]));
  return { cpu, wall, memory };
}

async function runSessions() {
  await hold(warmUp);
  const before = heap();
  const spent = await hold(operations);
  return { ...spent, memory: spent.memory - before };
}

async function runImport() {
  return measure(async () => {
    sdk = { ...(await import("@modelcontextprotocol/client")), ...(await import("@modelcontextprotocol/client/stdio")) };
  });
}

async function runStart() {
  const client = await open();
  await operation.echo(client);
  const [cpu, wall] = now(); // since the process started
  const spent = { cpu, wall, memory: resident() };
  await client.close();
  return spent;
}

const imported = await runImport();
if (process.argv[2] === "import") {
  console.log(JSON.stringify(imported));
  process.exit(0);
}
for await (const line of createInterface({ input: process.stdin })) {
  [kind, server, operations, warmUp, inFlight, tools, messages, size] = JSON.parse(line);
  console.log(JSON.stringify(await ({ connect: runConnects, sessions: runSessions, start: runStart }[kind] ?? runCalls)()));
}
process.exit(0); // idle sockets of fetch would keep it
