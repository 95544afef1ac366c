package inference

import (
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// A prompt needs of a rendering only what stands behind the last answer, since the answers' own
// tokens are known. So each answer is rendered as a stand-in: a short message with the same
// calls, which holds no special token. Where a template ends answers of some kind with the token
// with which the model stopped, that token's first place behind the beginning of the last
// stand-in is the end of it. That the template does so is seen in the same rendering. The earlier
// prompts must stand in it, token by token and in their order, each within reach of the one
// before, and one of them right behind the first stop token of a stand-in of the same kind. Else
// the end is found by a second rendering.

// Sampled is an answer among the known tokens of a conversation.
type Sampled struct {
	// Begin and End are the places of its tokens.
	Begin, End int
	// Message is the number of the message that repeats it.
	Message int
	// Unsure: it does not end with a stop token, or perhaps not.
	Unsure bool
}

// SampledOf is a turn's sample, where so many tokens are known before the turn. Which message
// repeats it is the caller's to say.
func SampledOf(t *events.TurnSampled, known int) Sampled {
	begin := known + len(t.PromptDelta)
	return Sampled{
		Begin: begin, End: begin + len(t.TokenIDs),
		Unsure: t.Cut() || len(t.TokenIDs) == 0 || t.Sampling != nil && len(t.Sampling.Stop) > 0,
	}
}

// standing is what of an answer may decide how a template ends it: the token with which it stopped,
// whether it has none, one or several calls, and who speaks behind it.
type standing struct {
	stop  int32
	calls int
	next  string
}

func (conv Conversation) standingOf(s Sampled) standing {
	messages := conv.Request.Messages
	return standing{conv.Known[s.End-1], min(2, len(messages[s.Message].ToolCalls)), messages[s.Message+1].Role}
}

// standIns are the messages of a conversation with stand-ins for its samples. ok is false where the
// last one does not end with a stop token, or no stand-in is safe.
func (conv Conversation) standIns() (messages []Message, ok bool) {
	messages = slices.Clone(conv.Request.Messages)
	if last := conv.Samples[len(conv.Samples)-1]; last.Unsure || last.Message+1 >= len(messages) {
		return nil, false
	}
	for _, s := range conv.Samples {
		if messages[s.Message], ok = standIn(messages[s.Message]); !ok {
			return nil, false
		}
	}
	return messages, true
}

// hasLike reports whether an earlier sample is of the same kind as the last one.
func (conv Conversation) hasLike() bool {
	last := len(conv.Samples) - 1
	return slices.ContainsFunc(conv.Samples[:last], conv.like(conv.Samples[last]))
}

// like reports whether a sample is of the same kind as another one.
func (conv Conversation) like(last Sampled) func(Sampled) bool {
	kind := conv.standingOf(last)
	return func(s Sampled) bool { return !s.Unsure && conv.standingOf(s) == kind }
}

// standIn is a message in the place of an answer. ok is false where a name in it
// may hold a special token.
func standIn(m Message) (in Message, ok bool) {
	in = Message{Role: m.Role, Content: mark}
	for _, c := range m.ToolCalls {
		if !plainName(c.ID) || !plainName(c.Function.Name) {
			return in, false
		}
		c.Function.Arguments = "{}"
		in.ToolCalls = append(in.ToolCalls, c)
	}
	return in, true
}

// plainName reports whether a name has letters, digits and what stands between words alone: special
// tokens have brackets or bars.
func plainName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-.:", r)
	})
}

// reach is how many tokens a message's stand-in takes at most, with what a
// template writes around it.
func reach(m Message) int {
	n := 64
	for _, c := range m.ToolCalls {
		n += 64 + len(c.ID) + len(c.Function.Name)
	}
	return n
}

// addedTokens is what a rendering with stand-ins has behind the last sample. ok is false
// where it does not prove that.
func (conv Conversation) addedTokens(whole []int32) (added []int32, ok bool) {
	last := len(conv.Samples) - 1
	stop, like := conv.Known[len(conv.Known)-1], conv.like(conv.Samples[last])
	whole, ok = behindPrompt(conv.Known[:conv.Samples[0].Begin], whole, stop)
	var closes []int32 // what ends a stand-in of the same kind: the stop token, and the one before
	for i := 0; ok && i < last; i++ {
		s, next := conv.Samples[i], conv.Known[conv.Samples[i].End:conv.Samples[i+1].Begin]
		end, behind := 0, []int32(nil)
		for ok = false; !ok && end < min(reach(conv.Request.Messages[s.Message]), len(whole)); {
			end++
			behind, ok = behindPrompt(next, whole[end:], stop)
		}
		if ok && like(s) && end > 1 && slices.Index(whole[:end], stop) == end-1 {
			closes = whole[end-2 : end]
		}
		whole = behind
	}
	at := slices.Index(whole[:min(reach(conv.Request.Messages[conv.Samples[last].Message]), len(whole))], stop)
	if !ok || at < 1 || !slices.Equal(whole[at-1:at+1], closes) {
		return nil, false
	}
	return whole[at+1:], true
}

// behindPrompt is what a rendering has behind a prompt. At its end a template may write in another
// way what opens an answer, and perhaps its thoughts, once the answer is there.
func behindPrompt(prompt, whole []int32, stop int32) (rest []int32, ok bool) {
	same := agree(prompt, whole)
	opens := prompt[same:]
	if same < min(enough, len(prompt)) || len(prompt) == 0 || len(opens) > emptyThoughts ||
		slices.Contains(opens, stop) {
		return nil, false
	}
	return whole[same:], true
}
