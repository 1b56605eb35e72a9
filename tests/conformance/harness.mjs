// What @vscode/prompt-tsx makes of jobs: `node harness.mjs FOLDER JOBS.jsonl`, one JSON object a line, in and out.
//
// FOLDER is one in which `npm install @vscode/prompt-tsx` was run; nothing else is needed. Jobs that count in `cl100k` or
// `o200k` need `gpt-tokenizer` there as well. What a job may hold is said in `elements` below and in `nodes.py` beside this file,
// which builds the same trees of promptkit.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import process from 'node:process';

import { tokenizersOf } from './harness_tokenizers.mjs';

const [, , folder, jobsFile] = process.argv;
const load = createRequire(path.resolve(folder, 'package.json'));
const tsx = load('@vscode/prompt-tsx');
const { Raw, OutputMode } = tsx;
const tokenizerOf = tokenizersOf(load);
const element = globalThis.vscpp;
const fragment = (...children) => element(globalThis.vscppf, null, ...children);

// ---- trees

class Wrap extends tsx.PromptElement {
	render() {
		return fragment(...this.props.children);
	}
}

class Empty extends tsx.PromptElement {
	render() {
		return undefined;
	}
}

class Throws extends tsx.PromptElement {
	render() {
		throw new Error('test error');
	}
}

/** Says what its budget is. */
class Echo extends tsx.PromptElement {
	render(_state, sizing) {
		const { label, consume, use, message } = this.props;
		const texts = consume === undefined ? [] : [`consume=${consume}, `];
		if (use) texts.push(Array(use).fill('u').join(' ') + ' ');
		texts.push(`${label}=${sizing.tokenBudget}`);
		return message ? element(tsx.UserMessage, null, ...texts) : fragment(...texts);
	}
}

/** Fills its budget with words. */
class Fill extends tsx.PromptElement {
	render(_state, sizing) {
		const { word = 'w', max = Infinity, factor = 1, plus = 0 } = this.props;
		return fragment(Array(Math.max(0, Math.min(max, Math.floor(sizing.tokenBudget * factor) + plus))).fill(word).join(' '));
	}
}

class Meta extends tsx.PromptMetadata {
	constructor(name) {
		super();
		this.name = name;
	}
}

/** What one render of a job shares: its tokenizer, the groups that are kept together, and what its Expandables were given. */
class Context {
	constructor(tokenizer) {
		this.tokenizer = tokenizer;
		this.groups = new Map();
		this.sizings = [];
	}

	group(id) {
		if (!this.groups.has(id)) this.groups.set(id, tsx.useKeepWith());
		return this.groups.get(id);
	}
}

const LAYOUT = ['priority', 'passPriority', 'flexGrow', 'flexReserve', 'flexBasis'];

/** The props of a node that are given, by the names of prompt-tsx. */
function given(node, ...more) {
	return Object.fromEntries([...LAYOUT, ...more].filter(key => node[key] !== undefined && node[key] !== null).map(key => [key, node[key]]));
}

const plain = (ctor, ...props) => async (node, context) => element(ctor, given(node, ...props), ...(await children(node, context)));

const elements = {
	system: plain(tsx.SystemMessage, 'name'),
	user: plain(tsx.UserMessage, 'name'),
	tool: plain(tsx.ToolMessage, 'toolCallId'),
	async assistant(node, context) {
		const toolCalls = node.toolCalls?.map(({ id, name, arguments: given, keepWith }) => ({
			id,
			type: 'function',
			function: { name, arguments: given ?? '' },
			...(keepWith === undefined ? {} : { keepWith: context.group(keepWith) }),
		}));
		return element(tsx.AssistantMessage, { ...given(node, 'name'), toolCalls }, ...(await children(node, context)));
	},
	async textchunk(node, context) {
		const props = given(node, 'breakOn', 'breakOnWhitespace');
		if (node.breakOnRegex !== undefined) props.breakOn = new RegExp(node.breakOnRegex, 'g');
		return element(tsx.TextChunk, props, ...(await children(node, context)));
	},
	chunk: plain(tsx.Chunk),
	wrap: plain(Wrap),
	logicalwrapper: plain(tsx.LogicalWrapper),
	legacy: plain(tsx.LegacyPrioritization),
	prioritizedlist: plain(tsx.PrioritizedList, 'descending'),
	tokenlimit: plain(tsx.TokenLimit, 'max'),
	keepwith: async (node, context) => element(context.group(node.id), given(node), ...(await children(node, context))),
	ifempty: async (node, context) =>
		element(tsx.IfEmpty, { ...given(node), alt: await build(node.alt, context) }, ...(await children(node, context))),
	expandable(node, context) {
		const { word = 'e', max = Infinity, min = 0, over = 0, constant } = node;
		const value = sizing => {
			context.sizings.push(`${node.name ?? word}=${sizing.tokenBudget}`);
			return constant ?? Array(Math.max(min, Math.min(max, sizing.tokenBudget + over))).fill(word).join(' ');
		};
		return element(tsx.Expandable, { ...given(node), value });
	},
	echo: node => element(Echo, { ...given(node, 'consume', 'use', 'message'), label: node.name }),
	fill: node => element(Fill, given(node, 'word', 'max', 'factor', 'plus')),
	image: plain(tsx.Image, 'src', 'detail', 'mimeType'),
	document: plain(tsx.Document, 'data', 'mediaType'),
	opaque: node => element('opaque', given(node, 'value', 'tokenUsage')),
	cachebreakpoint: node => element('cacheBreakpoint', node.cacheType === undefined ? {} : { type: node.cacheType }),
	br: () => element('br', {}),
	meta: node => element('meta', { value: new Meta(node.name), local: node.local }),
	reference: node => element('references', { value: [new tsx.PromptReference({ variableName: node.name })] }),
	elementjson: async (node, context) => element('elementJSON', { data: await embedded(node, context) }),
	async toolresult(node, context) {
		const content = [];
		for (const part of node.parts ?? [node]) {
			content.push({ value: part.text !== undefined && !part.children?.length ? String(part.text) : await embedded(part, context) });
		}
		return element(tsx.ToolResult, { ...given(node), data: { content } });
	},
	empty: node => element(Empty, given(node)),
	throws: node => element(Throws, given(node)),
};

/** A tree as another process would send it: rendered for itself, and through JSON text. */
async function embedded(node, { tokenizer }) {
	const body = await children(node, new Context(tokenizer));
	class Embedded extends tsx.PromptElement {
		render() {
			return fragment(...body);
		}
	}
	const countTokens = text => tokenizer.tokenLength({ type: Raw.ChatCompletionContentPartKind.Text, text });
	return JSON.parse(JSON.stringify(await tsx.renderElementJSON(Embedded, {}, { tokenBudget: node.budget ?? 1_000_000, countTokens })));
}

async function children(node, context) {
	return Promise.all((node.children ?? (node.text === undefined ? [] : [node.text])).map(child => build(child, context)));
}

/** The piece that a spec describes. Pieces belong to one render: a PrioritizedList writes into its children. */
async function build(spec, context) {
	if (spec === null) return undefined; // as JSX has it where there is nothing
	if (typeof spec !== 'object') return spec;
	if (Array.isArray(spec)) return fragment(...(await Promise.all(spec.map(each => build(each, context)))));
	if (spec.type === 'fragment') return fragment(...(await children(spec, context)));
	if (!Object.hasOwn(elements, spec.type)) throw new Error(`no element is called ${JSON.stringify(spec.type)}`);
	return elements[spec.type](spec, context);
}

// ---- outcomes

const filled = (key, values) => (values?.length ? { [key]: values } : {});

function shownPart(part) {
	const kinds = Raw.ChatCompletionContentPartKind;
	switch (part.type) {
		case kinds.Text:
			return { type: 'text', text: part.text };
		case kinds.Image:
			return { type: 'image', ...part.imageUrl };
		case kinds.Document:
			return { type: 'document', ...part.documentData };
		case kinds.Opaque:
			return { type: 'opaque', value: part.value };
		case kinds.CacheBreakpoint:
			return { type: 'cachebreakpoint', cacheType: part.cacheType };
		default:
			throw new Error(`no part is of kind ${part.type}`);
	}
}

function shown(message) {
	const parts = message.content.map(shownPart);
	return {
		role: Raw.ChatRole.display(message.role),
		...(message.name ? { name: message.name } : {}),
		...(parts.length === 1 && parts[0].type === 'text' ? { text: parts[0].text } : { content: parts }),
		...filled('toolCalls', message.toolCalls?.map(call => ({ id: call.id, name: call.function.name, arguments: call.function.arguments }))),
		...(message.toolCallId ? { toolCallId: message.toolCallId } : {}),
	};
}

const names = references => [...new Set(references.map(reference => reference.anchor.variableName))];

async function render(job, budget) {
	const context = new Context(tokenizerOf(job.tokenizer));
	try {
		const piece = await build(job.spec, context);
		class Root extends tsx.PromptElement {
			render() {
				return fragment(piece);
			}
		}
		const modelMaxPromptTokens = typeof budget === 'number' ? budget : Number.MAX_SAFE_INTEGER;
		const result = await new tsx.PromptRenderer({ modelMaxPromptTokens }, Root, {}, context.tokenizer).renderRaw();
		return {
			messages: result.messages.map(shown),
			tokenCount: result.tokenCount,
			...filled('metadata', result.metadata.getAll(Meta).map(meta => meta.name)),
			...filled('references', names(result.references)),
			...filled('omittedReferences', names(result.omittedReferences)),
			...filled('expandableSizings', context.sizings),
			...(job.opts?.openai ? { openai: tsx.toMode(OutputMode.OpenAI, result.messages) } : {}),
		};
	} catch (error) {
		if (error.constructor.name !== 'BudgetExceededError') return { error: error.message };
		return {
			error: error.message,
			errorType: 'BudgetExceededError',
			errorMessages: error.messages?.map(shown),
			...filled('errorMetadata', error.metadata?.getAll(Meta).map(meta => meta.name)),
		};
	}
}

/** What a job comes to. With the budget `prunedown`, every distinct outcome from the full size down to nothing, or to an error. */
async function outcome(job) {
	if (job.budget !== 'prunedown') return render(job, job.budget);
	const full = await render(job, 'inf');
	if (full.error !== undefined) return full;
	const steps = [];
	let last;
	for (let budget = full.tokenCount; budget >= 0; budget -= 1) {
		const found = await render(job, budget);
		const now = JSON.stringify(found.messages ?? 'error');
		if (now === last) continue;
		last = now;
		steps.push({ budget, ...found });
		if (!found.messages?.length) break;
	}
	return { steps };
}

for (const line of readFileSync(jobsFile, 'utf8').split('\n')) {
	if (!line.trim()) continue;
	const job = JSON.parse(line);
	process.stdout.write(JSON.stringify({ name: job.name, ...(await outcome(job)) }) + '\n');
}
