package dialects

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
)

// piecesOf are the events of an answer that is told at once.
func piecesOf(d Dialect, a *Request, n *Answer) (list []Piece) {
	d.Stream(a, n, func(p Piece) { list = append(list, p) }).End(n)
	return list
}

// randomText is some of what models write: characters of several bytes, and
// texts longer than a piece.
func randomText(r *rand.Rand) string {
	return strings.Repeat([]string{"grün 漢字 🙂\n", "a", `{"x": "\"`}[r.IntN(3)], r.IntN(4)*[]int{1, 1, 700}[r.IntN(3)])
}

// TestStreamsSayWhatIsRecorded: in each dialect, however an answer came in parts, what its stream
// said is the whole answer's, and so are the end and the usage. That of responses says no thoughts
// behind words but in the whole answer at its end.
func TestStreamsSayWhatIsRecorded(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 35))
	for round := range 500 {
		n := &Answer{ID: "r.x-7", Model: "m", Created: time.Unix(1, 0),
			Turn: events.TurnSampled{FinishReason: []string{events.FinishStop, events.FinishLength}[r.IntN(2)],
				PromptTokens: 5, CompletionTokens: 7}}
		n.Reasoning, n.Turn.Content = randomText(r), randomText(r)
		for i := range r.IntN(3) {
			n.Turn.ToolCalls = append(n.Turn.ToolCalls,
				events.ToolCall{ID: fmt.Sprint("c", i), Name: "f",
					Arguments: []string{`{"a":"` + strings.Repeat("x", r.IntN(9000)) + `"}`, "no JSON", ""}[r.IntN(3)]})
			n.Turn.FinishReason = events.FinishToolCalls
		}
		for _, d := range []Dialect{Chat{}, Messages{}, Responses{}, Gemini{}} {
			var list []Piece
			a := &Request{Stream: true, usage: true, thoughts: true}
			head := &Answer{ID: "r.x-s1", Model: "m", Created: time.Unix(2, 0)}
			s := d.Stream(a, head, func(p Piece) { list = append(list, p) })
			order := r.Perm(8)
			reasoning, content, thought := n.Reasoning, n.Turn.Content, n.Reasoning
			for _, k := range order { // thoughts may come behind words
				from, tell := &reasoning, s.Reason
				if k%2 == 0 {
					from, tell = &content, s.Say
				}
				if cut := r.IntN(len(*from) + 1); cut > 0 && len(strings.ToValidUTF8((*from)[:cut], "")) == cut &&
					len(strings.ToValidUTF8((*from)[cut:], "")) == len(*from)-cut {
					if k%2 == 0 && content == n.Turn.Content { // the first words
						thought = strings.TrimSuffix(n.Reasoning, reasoning)
					}
					tell((*from)[:cut])
					*from = (*from)[cut:]
				}
			}
			if err := s.End(n); err != nil {
				t.Fatalf("round %d, %T: %v", round, d, err)
			}
			told := *n
			told.ID, told.Created = head.ID, head.Created
			if (d == Responses{}) {
				last := list[len(list)-1].Data.(map[string]any)["response"]
				if got, want := wholeOf(t, last), wholeOf(t, d.Whole(a, &told)); got != want {
					t.Fatalf("round %d: the stream ends with\n%.3000s\nthe whole answer is\n%.3000s", round, got, want)
				}
				told.Reasoning = thought
			}
			if got, want := gathered(t, list), wholeOf(t, d.Whole(a, &told)); got != want {
				t.Fatalf("round %d, %T: the stream said\n%.3000s\nthe whole answer is\n%.3000s", round, d, got, want)
			}
		}
	}
}

// TestStreamsThatSayOtherwise: what was told cannot be taken back. A turn that says anything else
// ends no stream, so that nobody takes it for the model's answer.
func TestStreamsThatSayOtherwise(t *testing.T) {
	for _, d := range []Dialect{Chat{}, Messages{}, Responses{}, Gemini{}} {
		for _, said := range []string{"ab", "abd", "xbc", ""} {
			for _, thought := range []bool{true, false} {
				var list []Piece
				s := d.Stream(&Request{Stream: true, thoughts: true}, &Answer{},
					func(p Piece) { list = append(list, p) })
				n, tell, into := &Answer{}, s.Say, (*string)(nil)
				if into = &n.Turn.Content; thought {
					tell, into = s.Reason, &n.Reasoning
				}
				tell("abc")
				*into = said
				if before := len(list); s.End(n) == nil || len(list) > before {
					t.Errorf("%T: a stream that said abc ends with a turn of %q", d, said)
				}
			}
		}
	}
}

// spoken is what an answer says, in any dialect.
type spoken struct {
	Reasoning, Content string
	Calls              []string
	End                string
	Used               string
	ID                 string
}

func (s spoken) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// wire is the union of the fields of events and whole answers that these tests read.
type wire struct {
	Type, ID string
	Delta    json.RawMessage
	Choices  []struct {
		Delta, Message *struct {
			Content          *string
			ReasoningContent string `json:"reasoning_content"`
			ToolCalls        []struct {
				Index    int
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		FinishReason *string `json:"finish_reason"`
	}
	Usage   json.RawMessage
	Message struct{ ID string }
	Index   int
	Output  []item
	Item    item
	Status  string
	// Of Anthropic's.
	Content      []item
	ContentBlock item   `json:"content_block"`
	StopReason   string `json:"stop_reason"`
	Response     *wire
	// Of Gemini's.
	Candidates []struct {
		Content      struct{ Parts []geminiItem }
		FinishReason string
	}
	UsageMetadata json.RawMessage
	ResponseID    string
}

type geminiItem struct {
	Text         string
	Thought      bool
	FunctionCall json.RawMessage
}

// addGemini takes what an answer of Gemini's says, whole or in a piece.
func (s *spoken) addGemini(w wire) {
	for _, c := range w.Candidates {
		for _, p := range c.Content.Parts {
			if p.Thought {
				s.Reasoning += p.Text
			} else {
				s.Content += p.Text
			}
			if p.FunctionCall != nil {
				s.Calls = append(s.Calls, string(p.FunctionCall))
			}
		}
		s.ID, s.End, s.Used = w.ResponseID, c.FinishReason, string(w.UsageMetadata)
	}
}

type item struct {
	Type, ID, Name, Text, Thinking string
	CallID                         string `json:"call_id"`
	Arguments, Input               json.RawMessage
	Content, Summary               []struct{ Text string }
}

func read[T any](t *testing.T, value any) (into T) {
	t.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &into)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return into
}

func wholeOf(t *testing.T, value any) string {
	t.Helper()
	w := read[wire](t, value)
	s := spoken{ID: w.ID, Used: string(w.Usage), End: w.StopReason}
	for _, c := range w.Choices {
		s.Reasoning, s.Content, s.End = c.Message.ReasoningContent, *c.Message.Content, *c.FinishReason
		for _, call := range c.Message.ToolCalls {
			s.Calls = append(s.Calls, call.ID+call.Function.Name+call.Function.Arguments)
		}
	}
	s.addGemini(w)
	for _, i := range slices.Concat(w.Content, w.Output) {
		s.add(i)
	}
	if w.Status != "" {
		s.End = w.Status
	}
	return s.String()
}

func (s *spoken) add(i item) {
	s.Reasoning, s.Content = s.Reasoning+i.Thinking, s.Content+i.Text
	for _, p := range i.Summary {
		s.Reasoning += p.Text
	}
	for _, p := range i.Content {
		s.Content += p.Text
	}
	switch i.Type {
	case "tool_use":
		s.Calls = append(s.Calls, i.ID+i.Name+string(i.Input))
	case "function_call":
		s.Calls = append(s.Calls, i.CallID+i.Name+string(i.Arguments))
	}
}

// gathered is what the deltas of a stream say together.
func gathered(t *testing.T, list []Piece) string {
	t.Helper()
	var s, done spoken
	calls, open := map[int]string{}, ""
	blocks := 0
	for _, p := range list {
		if p.Data == "[DONE]" {
			continue
		}
		w := read[wire](t, p.Data)
		var d struct {
			Text, Thinking string
			PartialJSON    string `json:"partial_json"`
			StopReason     string `json:"stop_reason"`
		}
		var plain string
		if json.Unmarshal(w.Delta, &plain) != nil && json.Unmarshal(w.Delta, &d) == nil {
			s.Content, s.Reasoning = s.Content+d.Text, s.Reasoning+d.Thinking
			calls[w.Index] += d.PartialJSON
		}
		switch w.Type {
		case "":
			s.ID = w.ID
			s.addGemini(w)
			if w.Usage != nil {
				s.Used = string(w.Usage)
			}
			for _, c := range w.Choices {
				s.Reasoning += c.Delta.ReasoningContent
				if c.Delta.Content != nil {
					s.Content += *c.Delta.Content
				}
				for _, call := range c.Delta.ToolCalls {
					calls[call.Index] += call.ID + call.Function.Name + call.Function.Arguments
				}
				if c.FinishReason != nil {
					s.End = *c.FinishReason
				}
			}
		case "message_start":
			s.ID = w.Message.ID
		case "content_block_start":
			if open != "" || w.Index != blocks {
				t.Errorf("block %d of %s begins behind %d, while one of %q is open", w.Index,
					w.ContentBlock.Type, blocks, open)
			}
			blocks, open = blocks+1, w.ContentBlock.Type
			if open == "tool_use" {
				calls[w.Index] += w.ContentBlock.ID + w.ContentBlock.Name
			}
		case "content_block_stop":
			open = ""
		case "message_delta":
			s.End, s.Used = d.StopReason, string(w.Usage)
		case "response.output_text.delta":
			s.Content += plain
		case "response.reasoning_summary_text.delta":
			s.Reasoning += plain
		case "response.output_item.done":
			done.add(w.Item)
		case "response.completed", "response.incomplete":
			s.End, s.Used, s.ID, s.Calls = w.Response.Status, string(w.Response.Usage), w.Response.ID, done.Calls
			if done.Reasoning != s.Reasoning || done.Content != s.Content {
				t.Errorf("the items say %q and %q, their deltas %q and %q", done.Reasoning,
					done.Content, s.Reasoning, s.Content)
			}
		}
	}
	for i := range 16 {
		if calls[i] != "" {
			s.Calls = append(s.Calls, calls[i])
		}
	}
	return s.String()
}
