package vocabulary

import (
	"regexp"
	"strings"
)

// callMarks begin a tool call in the templates of models, all but phiMark with one of markBegins.
var callMarks = regexp.MustCompile("^(?:" + strings.Join([]string{
	// Any tag that is named so, with or without bars, a prefix and more words behind: Hermes, Qwen, GLM, Granite, Phi, Kimi, DeepSeek, DSML, MiniMax, Seed,
	// Hunyuan, Jamba, LFM, Nemotron, LongCat, FunctionGemma, Doubao, Olmo.
	`<[|｜]?[^<>\s"'=]{0,40}(tool|function)[_▁ -]calls?[^<>\s"'=]{0,24}[|｜]?>`, `<TOOLCALL>`, `<\|FunctionCallBegin\|>`,
	`<[^<>\s"'=]{0,24}(function|invoke)\s*(=|\sname\s*=)`, // Qwen-Coder, Llama, MiniMax, Step, DSML
	`\[TOOL_CALLS?\]`,          // Mistral
	`<\|python_(tag|start)\|>`, // Llama
	`<\|(START_ACTION|action_start|tools_prefix|plugin)\|>`,                                            // Command, InternLM, Apertus
	`<\|channel\|>\s*(commentary|analysis)\s+to\s*=`, `<\|start\|>\s*assistant\s+to\s*=`, `<\|call\|>`, // harmony
}, "|") + ")")

const (
	phiMark    = "functools[{"
	markBegins = "<["
	// markBytes is how much of a text a mark takes at most.
	markBytes = 256
)

// marked reports whether a text holds a mark. It looks only where one may begin: the expression alone takes 0.1 µs for each byte of a text.
func marked(text string) bool {
	if strings.Contains(text, phiMark) {
		return true
	}
	for {
		at := strings.IndexAny(text, markBegins)
		if at < 0 {
			return false
		}
		if callMarks.MatchString(text[at:min(at+markBytes, len(text))]) {
			return true
		}
		text = text[at+1:]
	}
}

// UnreadCall reports whether what a model said, and read has no call in it, holds a call that the server should have read. In thoughts a mark may be a word of the model's on
// calls: it counts where nothing is said behind them, or the thoughts end with it.
func UnreadCall(said, thoughts string) bool {
	if marked(said) {
		return true
	}
	thoughts = strings.TrimSpace(thoughts)
	if !marked(thoughts) {
		return false
	}
	closed := strings.HasSuffix(thoughts, ">") || strings.HasSuffix(thoughts, "]") || strings.HasSuffix(thoughts, "}")
	return strings.TrimSpace(said) == "" || closed
}
