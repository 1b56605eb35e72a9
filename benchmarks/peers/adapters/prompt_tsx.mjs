// Speaks for @vscode/prompt-tsx as serve.py does for a Python peer: `node --expose-gc prompt_tsx.mjs FOLDER`.
//
// FOLDER holds the installed packages. Elements are made with the factory that TSX compiles to.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';

const load = createRequire(path.resolve(process.argv[2], 'package.json'));
const prompting = load('@vscode/prompt-tsx');
const { AssistantMessage, SystemMessage, ToolMessage, UserMessage } = prompting;
const { Chunk, PrioritizedList, PromptElement, TextChunk, TokenLimit, renderPrompt, useKeepWith } = prompting;
const { OpenAI, OutputMode, Raw } = prompting;
const { countTokens } = load('gpt-tokenizer/encoding/o200k_base');
const element = globalThis.vscpp;

/** Every string in a value, wherever it stands, and one for a name: the rule of prompt-tsx's own tokenizer for OpenAI. */
function ofValue(value) {
	if (typeof value === 'string') return countTokens(value);
	if (value === null || typeof value !== 'object') return 0;
	let tokens = 0;
	for (const [key, each] of Object.entries(value)) if (each) tokens += ofValue(each) + (key === 'name' ? OpenAI.BaseTokensPerName : 0);
	return tokens;
}

const tokenizer = {
	mode: OutputMode.OpenAI,
	tokenLength: part => (part.type === Raw.ChatCompletionContentPartKind.Text ? countTokens(part.text) : 0),
	countMessageTokens: message => OpenAI.BaseTokensPerMessage + ofValue(message),
};

class History extends PromptElement {
	render() {
		const { items } = this.props;
		const pieces = [];
		for (let age = 0; age < items.length; age += 1) {
			const { role, content, tool_calls: calls } = items[age];
			if (!calls) {
				pieces.push(element(role === 'user' ? UserMessage : AssistantMessage, { priority: age }, content));
				continue;
			}
			const KeepWith = useKeepWith();
			const toolCalls = calls.map(call => ({ ...call, keepWith: KeepWith }));
			const result = items[(age += 1)];
			const answer = element(ToolMessage, { toolCallId: result.tool_call_id }, result.content);
			pieces.push(element(KeepWith, { priority: age }, element(AssistantMessage, { toolCalls }, content)));
			pieces.push(element(KeepWith, { priority: age }, answer));
		}
		return element(globalThis.vscppf, null, ...pieces);
	}
}

class Lines extends PromptElement {
	render() {
		const chunks = this.props.items.map(({ content }, age) => element(TextChunk, { priority: age }, content));
		return element(UserMessage, null, ...chunks);
	}
}

/** The prompt of the README: a list of rounds whose newest are kept longest, and the log as a list of lines with a limit of its own. */
class AgentPrompt extends PromptElement {
	render() {
		const { items, budget } = this.props;
		const [system, log, request] = [items[0], items.at(-2), items.at(-1)];
		const rounds = [];
		for (let age = 1; age < items.length - 2; age += 1) {
			const { role, content, tool_calls: toolCalls } = items[age];
			if (!toolCalls) {
				rounds.push(element(role === 'user' ? UserMessage : AssistantMessage, null, content));
				continue;
			}
			const result = items[(age += 1)];
			const call = element(AssistantMessage, { toolCalls }, content);
			rounds.push(element(Chunk, null, call, element(ToolMessage, { toolCallId: result.tool_call_id }, result.content)));
		}
		const lines = element(PrioritizedList, { descending: false }, ...log.content.split('\n'));
		return element(
			globalThis.vscppf,
			null,
			element(SystemMessage, { priority: 1000 }, system.content),
			element(PrioritizedList, { priority: 700, descending: false }, ...rounds),
			element(UserMessage, { priority: 800 }, element(TokenLimit, { max: Math.floor(budget / 4) }, lines)),
			element(UserMessage, { priority: 1000 }, request.content)
		);
	}
}

const fit = ({ shape, budget, items }) =>
	renderPrompt(
		{ chunks: Lines, history: AgentPrompt }[shape] ?? History,
		{ items, budget },
		{ modelMaxPromptTokens: budget - OpenAI.BaseTokensPerCompletion },
		tokenizer,
		undefined,
		undefined,
		OutputMode.OpenAI
	);

/** Seconds of processor time, of all threads, and on the clock, and what came out. */
async function timed(call) {
	globalThis.gc();
	const before = process.cpuUsage();
	const began = performance.now();
	const result = await call();
	const clock = (performance.now() - began) / 1e3;
	const { user, system } = process.cpuUsage(before);
	return [(user + system) / 1e6, clock, result];
}

async function answer(file) {
	const read = () => JSON.parse(readFileSync(file, 'utf8'));
	const work = read();
	const [seconds, clock, { messages, tokenCount }] = await timed(() => fit(work));
	const texts = read().items.flatMap(item => [item.content, ...(item.tool_calls ?? []).map(call => call.function.arguments)]);
	const [floor] = await timed(() => texts.forEach(text => countTokens(text)));
	return { seconds, clock, floor, claim: tokenCount + OpenAI.BaseTokensPerCompletion, messages };
}

for await (const line of createInterface({ input: process.stdin })) {
	let reply;
	try {
		reply = await answer(line.trim());
	} catch (error) {
		reply = { error: `${error.name}: ${String(error.message).split('\n')[0]}` };
	}
	process.stdout.write(JSON.stringify(reply) + '\n');
}
