package inference_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// grown is an event of SGLang's, of tokens with their log-probabilities, where the server counts so
// many in all. meta are more fields of meta_info.
func grown(count int, meta string, ids ...int) string {
	list, triples := []string{}, []string{}
	for _, id := range ids {
		list, triples = append(list, fmt.Sprint(id)), append(triples, fmt.Sprintf("[-1,%d,null]", id))
	}
	return event(fmt.Sprintf(`"text":"t","output_ids":[%s],"meta_info":{"prompt_tokens":2,"completion_tokens":%d,"output_token_logprobs":[%s]%s}`,
		strings.Join(list, ","), count, strings.Join(triples, ","), meta))
}

// next is an event of llama.cpp's, of a token with its probability, where the
// server counts so many in all.
func next(count, id int, text string) string {
	return event(fmt.Sprintf(`"content":%q,"tokens":[%d],"stop":false,"tokens_predicted":%d,"tokens_evaluated":2,"completion_probabilities":[{"id":%d,"prob":0.5,"top_probs":[{"id":%d,"prob":0.5}]}]`,
		text, id, count, id, id))
}

// stops is the last event of llama.cpp's.
func stops(count int, why string) string {
	return event(fmt.Sprintf(`"content":"","tokens":[],"stop":true,"stop_type":%q,"tokens_predicted":%d,"tokens_evaluated":2`, why, count))
}

const null = `,"finish_reason":null`

// TestHostileNativeStreams: a stream of an engine's own form that contradicts itself costs a try,
// and says why. Tokens that came before are recorded, if they are behind the prompt.
func TestHostileNativeStreams(t *testing.T) {
	good, llama := grown(2, null, 7, 8), next(1, 7, "a")+next(2, 8, "b")
	var unnamed strings.Builder
	for count := 3; count < 1100; count++ {
		unnamed.WriteString(next(count, 8, ""))
	}
	for name, c := range map[string]struct {
		engine, stream, says string
		recorded             int
		away                 bool
	}{
		"no end": {inference.EngineSGLang, good, "the stream ended within the answer", 2, false},
		"another prompt": {inference.EngineSGLang, strings.Replace(good, `"prompt_tokens":2`, `"prompt_tokens":3`, 1),
			"another prompt", 0, false},
		"no prompt": {inference.EngineSGLang, strings.Replace(good, `"prompt_tokens":2,`, ``, 1),
			"the stream ended within the answer", 0, false},
		"changed": {inference.EngineSGLang, good + grown(3, null, 7, 9, 9),
			"token 1 of the stream was 8, and is 9", 2, false},
		"lacks some": {inference.EngineSGLang, good + grown(5, null, 9),
			"and its next event 1, of which the server counts 5", 2, false},
		"has fewer": {inference.EngineSGLang, good + grown(1, null, 7),
			"and its next event 1, of which the server counts 1", 2, false},
		"another list": {inference.EngineSGLang, good +
			strings.Replace(grown(3, null, 9), `"output_ids":[9]`, `"output_ids":[3]`, 1),
			"name other tokens", 2, false},
		"no probabilities": {inference.EngineSGLang, good +
			event(`"output_ids":[7,8,9],"meta_info":{"prompt_tokens":2,"completion_tokens":3}`),
			"name other tokens", 2, false},
		"an error": {inference.EngineSGLang, good +
			event(`"error":{"message":"the engine is dead","code":500}`), "the engine is dead", 2, false},
		"a status": {inference.EngineSGLang, good + grown(2,
			`,"finish_reason":{"type":"abort","message":"the engine is dead","status_code":503}`, 7, 8),
			"the engine is dead", 2, true},
		"too many": {inference.EngineSGLang, good + grown(1001, null, slices.Repeat([]int{3}, 999)...),
			"more than the 1000 tokens", 2, false},
		"goes on": {inference.EngineSGLang, good +
			grown(2, `,"finish_reason":{"type":"stop","matched":8}`, 7, 8) + grown(3, null, 9),
			"goes on behind the end", 0, false},
		"llama: no end": {inference.EngineLlamaCPP, llama, "the stream ended within the answer", 2, false},
		"llama: prompt": {inference.EngineLlamaCPP, strings.ReplaceAll(llama, `"tokens_evaluated":2`,
			`"tokens_evaluated":9`), "another prompt", 0, false},
		"llama: fewer": {inference.EngineLlamaCPP, llama + next(2, 9, "c"),
			"the stream has had 3 tokens, and the server counts 2", 2, false},
		"llama: error": {inference.EngineLlamaCPP, llama +
			event(`"error":{"message":"the slot is dead","code":500}`), "the slot is dead", 2, false},
		"llama: too many": {inference.EngineLlamaCPP, next(1, 7, "a") +
			strings.Repeat(`data: {"tokens":[3],"tokens_predicted":5000}`+"\n\n", 2),
			"the server counts 5000", 1, false},
		"llama: too many that it leaves out": {inference.EngineLlamaCPP, next(1, 7, "a") + unnamed.String(),
			"the server counts 1001 tokens, more than the 1000 tokens", 1, false},
		"llama: a stop token": {inference.EngineLlamaCPP, llama + next(3, 1, ""),
			"the stream ended within the answer", 2, false},
		"llama: a stop token and nothing": {inference.EngineLlamaCPP, llama + next(3, 1, "") +
			event(`"content":"","tokens":[],"stop":false,"tokens_predicted":3`),
			"the stream ended within the answer", 2, false},
		"llama: a special token": {inference.EngineLlamaCPP, llama + next(3, 1, "") + next(4, 9, "c"),
			"the stream ended within the answer", 4, false},
		"llama: two special tokens": {inference.EngineLlamaCPP, llama + next(3, 1, "") + next(4, 1, ""),
			"the stream ended within the answer", 3, false},
	} {
		_, recorded, err := completeAt(t.Context(), clientOf(stream{events: c.stream}), c.engine)
		failure, is := errors.AsType[*inference.Failure](err)
		if !is || failure.Permanent || failure.Away != c.away || !strings.Contains(failure.Error(), c.says) ||
			count(recorded) != c.recorded {
			t.Errorf("%s: %d tokens are recorded, and %v", name, count(recorded), err)
		}
		for _, p := range recorded {
			if p.Engine != c.engine {
				t.Errorf("%s: a piece is of %q", name, p.Engine)
			}
		}
	}
}

// TestLastEvents: llama.cpp leaves out of the last event of a stream what it was not asked for, and
// says there alone that it is the last one.
func TestLastEvents(t *testing.T) {
	for name, last := range map[string]string{
		"as it is asked for": stops(2, "eos"),
		"why alone":          strings.Replace(stops(2, "eos"), `"stop":true,`, "", 1),
	} {
		var asked struct {
			Fields []string `json:"response_fields"`
		}
		server := stream{events: next(1, 7, "a") + next(2, 1, "") + last, sampled: func(body []byte) {
			if err := json.Unmarshal(body, &asked); err != nil {
				t.Error(err)
			}
		}}
		answer, recorded, err := completeAt(t.Context(), clientOf(server), inference.EngineLlamaCPP)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		turn, _, err := answer.Turn(0, 7, time.Now())
		answer.Done()
		if err != nil || turn.FinishReason != events.FinishStop || !slices.Equal(turn.TokenIDs, []int32{7, 1}) ||
			len(recorded) > 0 {
			t.Errorf("%s: %d tokens are recorded, and the turn is %+v: %v", name, count(recorded), turn, err)
		}
		for _, field := range []string{"stop", "stop_type", "tokens_predicted", "tokens_evaluated"} {
			if !slices.Contains(asked.Fields, field) {
				t.Errorf("%s: %s is not asked for", name, field)
			}
		}
	}
}

// TestRepeatedAnswers: SGLang is asked for an event every 64th of an answer, and at least every
// piece: the events of a long answer repeat more of it then than those of a short one.
func TestRepeatedAnswers(t *testing.T) {
	for most, interval := range map[int]int{1000: 16, 6400: 100, 40 << 10: 512} {
		var asked struct {
			Params struct {
				Interval int `json:"stream_interval"`
			} `json:"sampling_params"`
		}
		server := stream{events: grown(1, `,"finish_reason":{"type":"stop"}`, 1), sampled: func(body []byte) {
			if err := json.Unmarshal(body, &asked); err != nil {
				t.Error(err)
			}
		}}
		if most > 32<<10 { // more than 64 events would have
			var lines []io.Reader
			line := ": " + strings.Repeat("x", 1<<20) + "\n"
			for range 225 {
				lines = append(lines, strings.NewReader(line))
			}
			lines = append(lines, strings.NewReader(server.events))
			server.events, server.tail = "", func(context.Context) io.Reader { return io.MultiReader(lines...) }
		}
		client := clientOf(server)
		client.MaxTokens = most
		answer, err := client.CompleteTokens(t.Context(), "http://streaming/v1",
			inference.Conversation{Engine: inference.EngineSGLang,
				Request: inference.Request{Messages: []inference.Message{{Role: "user", Content: "."}}},
				Piece:   func(context.Context, events.PieceSampled) error { return nil }},
			func(int) (int, *inference.Failure) { return most, nil })
		if err != nil {
			t.Errorf("of %d tokens: %v", most, err)
			continue
		}
		answer.Done()
		if asked.Params.Interval != interval {
			t.Errorf("of %d tokens an event is asked for every %d", most, asked.Params.Interval)
		}
	}
}

// TestVersionsOfEvents: SGLang labels an event with the version that the server has when it is
// sent. Tokens that were sampled while that changed have none, unless the end says it.
func TestVersionsOfEvents(t *testing.T) {
	of := func(v int) string { return fmt.Sprintf(`,"weight_version":"%d"`, v) }
	begun := grown(1, null+of(3), 1) + grown(2, null+of(3), 1, 2) + grown(4, null+of(4), 1, 2, 7, 8) +
		grown(5, null+of(4), 1, 2, 7, 8, 9)
	want := []events.VersionSpan{{Version: 3, End: 2}, {Version: -1, Start: 2, End: 4}, {Version: 4, Start: 4, End: 5}}
	_, recorded, _ := completeAt(t.Context(), clientOf(stream{events: begun}), inference.EngineSGLang)
	if len(recorded) != 1 || !slices.Equal(recorded[0].VersionSpans, want) {
		t.Errorf("recorded are %+v, want %+v", recorded, want)
	}
	spans := `,"weight_versions":[{"version":"3","start":0,"end":3},{"version":"4","start":3,"end":5}],"finish_reason":{"type":"length"}`
	for end, want := range map[string][]events.VersionSpan{spans: {{Version: 3, End: 3},
		{Version: 4, Start: 3, End: 5}}, `,"finish_reason":{"type":"length"}`: want} {
		answer, _, err := completeAt(t.Context(), clientOf(stream{events: begun + grown(5, of(4)+end, 1, 2, 7, 8, 9)}),
			inference.EngineSGLang)
		if err != nil {
			t.Fatal(err)
		}
		turn, _, err := answer.Turn(0, 7, time.Now())
		answer.Done()
		if err != nil || !slices.Equal(turn.VersionSpans, want) {
			t.Errorf("the versions are %+v, want %+v: %v", turn.VersionSpans, want, err)
		}
	}
}

// once is a server that samples once.
type once struct {
	events string
	asked  bool
}

func (o *once) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/generate") {
		return stream{}.RoundTrip(r)
	}
	if o.asked {
		return saying(http.StatusInternalServerError, "{}")(r)
	}
	o.asked = true
	return stream{events: o.events}.RoundTrip(r)
}

// TestAbortedEvents: where SGLang gives up an answer whose events hold what is new, the last one
// has the last token once more, or lacks some before it. What is certain is gone on with.
func TestAbortedEvents(t *testing.T) {
	const gone = `,"finish_reason":{"type":"abort"}`
	begun := grown(1, null, 7) + grown(3, null, 8, 9)
	for name, c := range map[string]struct {
		last string
		ids  int
	}{
		"nothing new": {grown(3, gone), 3}, "all": {grown(4, gone, 7, 8, 9, 1), 4},
		"the last once more": {grown(3, gone, 9), 3}, "lacks some": {grown(6, gone, 1), 3},
		"all log-probabilities": {strings.Replace(grown(4, gone, 7, 8, 9, 1), `"output_ids":[7,8,9,1]`,
			`"output_ids":[1]`, 1), 4},
	} {
		_, recorded, err := completeAt(t.Context(), clientOf(&once{events: begun + c.last}), inference.EngineSGLang)
		if err == nil || count(recorded) != c.ids {
			t.Errorf("%s: %d tokens are recorded: %v", name, count(recorded), err)
		}
	}
}

// TestTokensWithoutProbability: llama.cpp has no log-probabilities for tokens that end within a
// character and for those of a draft model, and its streams leave the former out. The turn is text
// alone, and the message is that of a whole answer, whether it was begun before or not. It is not
// sampled anew, as it would lose such tokens then.
func TestTokensWithoutProbability(t *testing.T) {
	for name, c := range map[string]struct {
		draft bool
		words string
		cut   int
	}{
		"character": {false, "I read \U0001f642 now.", 0}, "draft": {true, "I read it now.", 0},
		"character behind a break": {false, "I read \U0001f642 now.", 8},
		"character at the end":     {false, "I read it now.\U0001f642", 0},
		"many":                     {false, strings.Repeat("\U0001f642 is \U0001f643 ", 20) + ".", 8},
	} {
		s := tokenstest.New(t, "Qwen3", nil).LlamaCPP()
		said := s.Template.Answer("I think of it.", c.words, "a")
		s.Say = func(prompt string) (string, string) {
			_, begun, _ := strings.Cut(prompt, s.Template.Prompt)
			return said[len(begun):], ""
		}
		s.Drafts = c.draft
		k := newTalk(t, s)
		var turns []events.TurnSampled
		for _, streams := range []bool{false, true} {
			conv := k.conversation()
			if streams {
				recording(&conv)
				cut := c.cut
				s.Cut = func(sent int) bool {
					breaks := cut > 0 && sent >= cut
					if breaks {
						cut = 0
					}
					return breaks
				}
			}
			answer, err := k.complete(conv)
			if err != nil && c.cut > 0 && streams {
				answer, err = k.complete(conv)
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			turn, _, err := answer.Turn(0, 7, time.Now())
			answer.Done()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			turns = append(turns, turn)
		}
		for i, turn := range turns {
			if !turn.TextOnly || !slices.Contains(turn.Lacks, events.LackLogprobs) || turn.Content != c.words ||
				turn.Reasoning == nil || turn.Reasoning.Text != "I think of it." || len(turn.ToolCalls) != 1 {
				t.Errorf("%s: turn %d is %+v", name, i, turn)
			}
		}
		if want := 2 + min(1, c.cut); len(s.Turns()) != want {
			t.Errorf("%s: the server sampled %d times, want %d", name, len(s.Turns()), want)
		}
	}
}

// TestSilentTokens: special tokens have no text in llama.cpp's stream. Where the text is put
// together, as some tokens have no ids, they are in it.
func TestSilentTokens(t *testing.T) {
	begun := next(1, 7, "a") + next(2, 9, "") + next(4, 8, "\u00e9")
	// in the second one the stop token ends within a character
	for end, want := range map[string]string{next(5, 1, "") + stops(5, "eos"): "a<S>\u00e9", stops(5, "eos"): ""} {
		asked := ""
		server := stream{events: begun + end, asked: func(path, body string) {
			if path == "/v1/chat/completions" {
				asked = body
			}
		}}
		answer, recorded, err := completeAt(t.Context(), clientOf(server), inference.EngineLlamaCPP)
		if err != nil {
			t.Fatal(err)
		}
		turn, _, err := answer.Turn(0, 7, time.Now())
		answer.Done()
		if err != nil || !turn.TextOnly || turn.CompletionTokens != 5 || len(recorded) > 0 {
			t.Errorf("the turn is %+v, and %d tokens are recorded: %v", turn, count(recorded), err)
		}
		var chat struct{ Messages []inference.Message }
		if want != "" && (json.Unmarshal([]byte(asked), &chat) != nil ||
			chat.Messages[len(chat.Messages)-1].Content != want) {
			t.Errorf("%+v was read", chat.Messages)
		}
		if want == "" && (asked != "" || turn.Content != "a\u00e9") {
			t.Errorf("%q was read, and the turn says %q", asked, turn.Content)
		}
	}
}

// TestPenaltyCountsAnew: SGLang's penalty on repetition is on what its own request has sampled, so
// that an answer that would be gone on with is asked for as a whole.
func TestPenaltyCountsAnew(t *testing.T) {
	for engine, as := range streaming {
		s := as(tokenstest.New(t, "Qwen3", func(string) (string, string) { return long(), "" }))
		k := newTalk(t, s)
		conv := k.conversation()
		recording(&conv)
		penalty := 1.1
		conv.Request.RepetitionPenalty = &penalty
		answer, err := k.complete(conv)
		if err != nil {
			t.Fatal(err)
		}
		answer.Done()
		if recorded := conv.Begun != nil; recorded != !strings.HasPrefix(engine, "SGLang") {
			t.Errorf("%s: recorded: %v", engine, recorded)
		}
	}
}
