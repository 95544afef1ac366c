package inference

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference/vocabulary"
)

// finishWord is a server's word for why an answer ended, "" for none.
type finishWord string

// UnmarshalJSON takes a text, null, and SGLang's object with a type. Anything else is
// a word that nobody knows.
func (w *finishWord) UnmarshalJSON(data []byte) error {
	var text *string
	var object struct {
		Type string `json:"type"`
	}
	switch {
	case json.Unmarshal(data, &text) == nil:
		if *w = ""; text != nil {
			*w = finishWord(*text)
		}
	case json.Unmarshal(data, &object) == nil:
		*w = finishWord(object.Type)
	default: // the words in it are not one that a server gives
		*w = finishWord("no text: " + string(data))
	}
	return nil
}

// maxFinishWord is how long a server's word is as it is recorded, in characters.
const maxFinishWord = 60

// ended is why the answer ended, and the server's word where that says more. Servers say of an
// answer with calls that it stopped, or that it has calls.
func (c *Choice) ended() (reason, word string) {
	reason = vocabulary.Finish(string(c.FinishReason))
	if reason == events.FinishStop && len(c.Message.ToolCalls) > 0 {
		reason = events.FinishToolCalls
	}
	word = cut(printable(string(c.FinishReason)), maxFinishWord)
	if word == reason || reason == events.FinishStop || reason == events.FinishLength ||
		len(c.Message.ToolCalls) > 0 && reason == events.FinishToolCalls {
		word = ""
	}
	return reason, word
}

// special is a stop token at the end of a text, as templates spell them.
var special = regexp.MustCompile(`(<[|｜][^<>|｜]{1,60}[|｜]>|</s>|<eos>|<end_of_turn>)$`)

// withoutStop takes the text of the token that ended an answer by tokens out of what it
// says, as servers do in chats: parsers are given the text with it, and leave it there
// where they find no call.
func (c *Choice) withoutStop() {
	n := len(c.TokenIDs)
	byText := len(c.StopReason) > 0 && c.StopReason[0] == '"'
	if reason, _ := c.ended(); n == 0 || byText || reason != events.FinishStop {
		return
	}
	if entries := c.Logprobs.Content; len(entries) == n && entries[n-1].Token != "" &&
		!strings.HasPrefix(entries[n-1].Token, "token_id:") {
		c.Message.Content = strings.TrimSuffix(c.Message.Content, entries[n-1].Token)
		return
	}
	c.Message.Content = special.ReplaceAllString(c.Message.Content, "")
}

// gaveUp reports whether the server says that it did not bring the answer to an end: it is no turn.
func (c *Choice) gaveUp() bool {
	reason := vocabulary.Finish(string(c.FinishReason))
	return reason == events.FinishAborted || reason == events.FinishFailed
}

// unread reports whether the answer has a call that was not read, as text or
// by the server's own words.
func (c *Choice) unread() bool {
	reason := vocabulary.Finish(string(c.FinishReason))
	if len(c.Message.ToolCalls) > 0 {
		return false
	}
	switch reason {
	case events.FinishLength, events.FinishRepetition, events.FinishFiltered: // it may be half a call
		return false
	}
	said, thoughts := c.Message.Content, ""
	if at := strings.LastIndex(said, events.EndOfThoughts); at >= 0 { // no server has taken them out
		thoughts, said = said[:at], said[at+len(events.EndOfThoughts):]
	}
	if apart, _ := c.Message.recorded(); apart != nil { // what is too long is refused with the turn
		thoughts += apart.Text
	}
	return c.Message.called || reason == events.FinishToolCalls || vocabulary.UnreadCall(said, thoughts)
}

// Aborted reports whether the server gave the turn up half way, as servers do
// that take up new weights.
func (r *Response) Aborted() bool {
	return len(r.Choices) == 1 && vocabulary.Finish(string(r.Choices[0].FinishReason)) == events.FinishAborted
}

// GaveUp is the failure of an answer that the server did not bring to an end, whatever it
// holds; nil of any other.
func (r *Response) GaveUp(endpoint string) *Failure {
	switch {
	case r.Aborted():
		return &Failure{Class: events.ClassEndpoint, Throttled: true, Aborted: true,
			Err: fmt.Errorf("%s aborted the turn", endpoint)}
	case len(r.Choices) == 1 && r.Choices[0].gaveUp():
		_, word := r.Choices[0].ended()
		return &Failure{Class: events.ClassEndpoint, Err: fmt.Errorf(
			"%s failed within the turn, which ended with finish_reason %.64q", endpoint, word)}
	}
	return nil
}
