package events

import "strings"

// Why a new segment begins: what of the known tokens the prompt does not repeat, or, of a rollout
// whose prompts a harness makes, what it did with the conversation.
const (
	CauseThoughts = "thoughts" // those of a turn's thoughts: the chat template leaves them out
	CauseDrift    = "drift"    // those that a turn sampled: its answer is rendered, or cut into tokens, in another way
	CauseHistory  = "history"  // those of an earlier prompt
	CauseSummary  = "summary"  // anything: a summary stands in place of what was said

	CauseTools = "tools" // it goes on with other tools, or tells the chat template something else
	// its first words are those of an earlier conversation, behind other words of the system
	CauseSystem    = "system"
	CauseRewritten = "rewritten" // it changed what was said before, or left a part out
	// CauseCompacted: the tools and the system's words are those of an earlier conversation, the
	// rest is shorter than that one, and no answer of it begins the rest. Harnesses that sum their
	// history up do so, and so do agents that begin a second subagent of one kind.
	CauseCompacted = "compacted"
	CauseSibling   = "sibling"   // another turn went on from the same place before
	CauseUnrelated = "unrelated" // it began another conversation, as of a subagent or for a title

	// CauseImages: it has an image, so that it was asked for by messages
	// although the run asks by tokens.
	CauseImages = "images"
)

// SegmentCauses are all of them.
var SegmentCauses = []string{CauseThoughts, CauseDrift, CauseHistory, CauseSummary, CauseTools, CauseSystem,
	CauseRewritten, CauseCompacted, CauseSibling, CauseUnrelated, CauseImages}

// Thought reports whether a turn holds thoughts, which templates may leave out of later prompts.
func (t *TurnSampled) Thought() bool {
	return t.Reasoning != nil || strings.Contains(t.Content, EndOfThoughts)
}

// opensThoughts is how many tokens open the thoughts of an answer, at the end of its prompt or in
// the answer itself: templates leave thoughts out from there on, or put an empty block in their
// place. A prompt that repeats more of an answer has its thoughts, and differs behind them.
const opensThoughts = 8

// SegmentCause is what of a segment's turns a prompt that does not continue them does not repeat.
func SegmentCause(turns []TurnSampled, prompt []int32) string {
	for i := range turns {
		t := &turns[i]
		same := repeated(t.PromptDelta, prompt)
		prompt = prompt[same:]
		if left := len(t.PromptDelta) - same; left > 0 {
			if t.Thought() && left <= opensThoughts {
				return CauseThoughts
			}
			return CauseHistory
		}
		same = repeated(t.TokenIDs, prompt)
		prompt = prompt[same:]
		if same < len(t.TokenIDs) {
			if t.Thought() && same <= opensThoughts {
				return CauseThoughts
			}
			return CauseDrift
		}
	}
	return CauseHistory // of a turn without tokens, or one behind these that the prompt goes back over
}

// repeated is how many tokens two lists begin with in common.
func repeated(known, prompt []int32) int {
	n := 0
	for n < min(len(known), len(prompt)) && known[n] == prompt[n] {
		n++
	}
	return n
}
