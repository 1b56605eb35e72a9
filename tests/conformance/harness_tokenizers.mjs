// How the harness counts: the tokenizers that a job may ask for.

const words = text => text.match(/\S+/g)?.length ?? 0;
const sum = numbers => numbers.reduce((total, each) => total + each, 0);

/** From a `tokenizer` of a job to a tokenizer of prompt-tsx. `load` requires from the folder that prompt-tsx is installed in. */
export function tokenizersOf(load) {
	const { Raw, OutputMode } = load('@vscode/prompt-tsx');
	const { Image, Opaque, Text } = Raw.ChatCompletionContentPartKind;
	const isText = part => part.type === Text;

	/** A tokenizer that adds up the texts of a message: `ofText` counts one, `ofPart` what is no text, `ofFrame` what is around. */
	function additive(ofText, { ofPart = () => 0, ofFrame = () => 0 } = {}) {
		const ofAny = part => (isText(part) ? ofText(part.text) : ofPart(part));
		return {
			mode: OutputMode.Raw,
			tokenLength: ofAny,
			countMessageTokens: message => ofFrame(message) + sum(message.content.map(ofAny)),
		};
	}

	/** A real vocabulary, with OpenAI's framing as prompt-tsx's own tests have it: 3, every string wherever it stands, 1 for a `name`. */
	function vocabulary(encoding) {
		const { encode } = load(`gpt-tokenizer/encoding/${encoding}`);
		const ofText = text => (text ? encode(text, { allowedSpecial: 'all' }).length : 0);
		const ofValue = value => {
			if (typeof value === 'string') return ofText(value);
			if (value === null || typeof value !== 'object') return 0;
			return sum(Object.entries(value).map(([key, each]) => (each ? ofValue(each) + (key === 'name' ? 1 : 0) : 0)));
		};
		return {
			mode: OutputMode.OpenAI,
			tokenLength: part => (isText(part) ? ofText(part.text) : 0),
			countMessageTokens: message => 3 + ofValue(message),
		};
	}

	return wanted => {
		const options = typeof wanted === 'object' && wanted !== null ? wanted : { kind: wanted ?? 'words' };
		const perMessage = options.perMessage ?? 0;
		switch (options.kind) {
			case 'words': {
				const calls = ({ toolCalls = [] }) => sum(toolCalls.map(call => words(`${call.function.name} ${call.function.arguments}`)));
				const ofPart = part => (part.type === Image && options.image) || (part.type === Opaque && part.value?.tokens) || 0;
				return additive(words, { ofPart, ofFrame: message => perMessage + (options.toolCalls ? calls(message) : 0) });
			}
			case 'chars':
				return additive(text => text.length, { ofFrame: () => perMessage });
			case 'consume':
				return additive(text => sum([...text.matchAll(/consume=([0-9]+)/g)].map(match => Number(match[1]))));
			case 'cl100k':
			case 'o200k':
				return vocabulary(`${options.kind}_base`);
			default:
				throw new Error(`no tokenizer is called ${JSON.stringify(wanted)}`);
		}
	};
}
