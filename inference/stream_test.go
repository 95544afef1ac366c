package inference_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
	"github.com/rondo-rl/rondo/retry"
)

// recording has a conversation record its answer.
func recording(conv *inference.Conversation) {
	conv.Piece = func(_ context.Context, p events.PieceSampled) (err error) {
		conv.Begun, err = conv.Begun.Add(p)
		return err
	}
}

// streaming are the ways in which servers stream.
var streaming = map[string]func(*tokenstest.Server) *tokenstest.Server{
	"vLLM": func(s *tokenstest.Server) *tokenstest.Server { return s }, "SGLang": (*tokenstest.Server).SGLang,
	"llama.cpp": (*tokenstest.Server).LlamaCPP,
	"SGLang incremental": func(s *tokenstest.Server) *tokenstest.Server {
		s.Incremental = true
		return s.SGLang()
	},
}

// long is an answer of more tokens than a piece has, with thoughts and a call.
func long() string {
	return tokenstest.Templates["Qwen3"].Answer(strings.Repeat("I think of it. ", 120), "I read it now.", "a")
}

// TestStreamedAnswer: an answer is the same turn whether it is streamed or not, and though
// its connection breaks and its server goes away in the middle. Only a long one is
// recorded before its end.
func TestStreamedAnswer(t *testing.T) {
	short := tokenstest.Templates["Qwen3"].Answer("I think.", "Done.", "")
	for name, c := range map[string]struct {
		said    string
		streams int
		older   bool
		cuts    []int // tokens that each request sends before its connection breaks
		pieces  int
		parts   int
	}{
		"short":           {short, tokenstest.Streaming, false, nil, 0, 0},
		"long":            {long(), tokenstest.Streaming, false, nil, 1, 0},
		"vLLM 0.32":       {long(), tokenstest.Streaming, true, nil, 1, 0},
		"refused":         {long(), tokenstest.RefusesStream, false, nil, 0, 0},
		"ignored":         {long(), tokenstest.IgnoresStream, false, nil, 0, 0},
		"broken":          {long(), tokenstest.Streaming, false, []int{16}, 2, 2},
		"broken at once":  {long(), tokenstest.Streaming, false, []int{0}, 1, 0},
		"broken often":    {long(), tokenstest.Streaming, false, []int{16, 0, 512, 8}, 3, 4},
		"broken near end": {short, tokenstest.Streaming, false, []int{1}, 1, 2},
	} {
		for engine, as := range streaming {
			if c.older && engine != "vLLM" {
				continue
			}
			t.Run(name+" "+engine, func(t *testing.T) {
				s := as(tokenstest.New(t, "Qwen3", nil))
				s.Streams, s.Older = c.streams, c.older
				s.Say = func(prompt string) (string, string) {
					_, begun, _ := strings.Cut(prompt, s.Template.Prompt)
					return c.said[len(begun):], ""
				}
				k := newTalk(t, s)
				plain, err := k.ask()
				if err != nil {
					t.Fatal(err)
				}
				defer plain.Done()
				want, _, err := plain.Turn(0, 7, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				cuts := c.cuts
				s.Cut = func(sent int) bool {
					if len(cuts) == 0 || sent < cuts[0] {
						return false
					}
					cuts = cuts[1:]
					return true
				}
				conv, pieces := k.conversation(), 0
				recording(&conv)
				record := conv.Piece
				conv.Piece = func(ctx context.Context, p events.PieceSampled) error { pieces++; return record(ctx, p) }
				var answer *inference.Response
				for range len(c.cuts) + 1 {
					if answer, err = k.complete(conv); err == nil {
						break
					}
					if failure, is := errors.AsType[*inference.Failure](err); !is || failure.Permanent ||
						failure.Class != events.ClassEndpoint {
						t.Fatal(err)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Done()
				got, _, err := answer.Turn(0, 7, time.Now())
				if err != nil || got.TextOnly || len(got.Lacks) > 0 || got.Reasoning == nil || want.Reasoning == nil {
					t.Fatalf("%d tokens, %.200q, %s: %v", len(got.TokenIDs), got.Content, got.FinishReason, err)
				}
				// the model of this test may cut the rest of a text into other tokens
				if c.parts < 2 && !(slices.Equal(got.TokenIDs, want.TokenIDs) &&
					slices.Equal(got.Logprobs, want.Logprobs)) {
					t.Error("the tokens are others")
				}
				if s.Tokenizer.Decode(got.TokenIDs) != s.Tokenizer.Decode(want.TokenIDs) ||
					got.Content != want.Content ||
					got.Reasoning.Text != want.Reasoning.Text || len(got.ToolCalls) != len(want.ToolCalls) ||
					got.FinishReason != want.FinishReason || got.PromptTokens != want.PromptTokens {
					t.Errorf("the turn has %d tokens, %q and %d calls, want %d, %q and %d", len(got.TokenIDs),
						got.Content, len(got.ToolCalls), len(want.TokenIDs), want.Content, len(want.ToolCalls))
				}
				if pieces != c.pieces || got.Parts != c.parts {
					t.Errorf("%d pieces and %d parts, want %d and %d", pieces, got.Parts, c.pieces, c.parts)
				}
			})
		}
	}
}

// TestAbortedStream: what was streamed of an answer that the server aborts is recorded, and gone on
// with. The message is that of all of it.
func TestAbortedStream(t *testing.T) {
	for _, engine := range []string{"vLLM", "SGLang", "SGLang incremental"} {
		text := long()
		s := aborting(t, strings.TrimSuffix(engine, " incremental"), text, 3)
		s.Incremental = strings.HasSuffix(engine, " incremental")
		k := newTalk(t, s)
		conv := k.conversation()
		recording(&conv)
		answer, err := k.complete(conv)
		if err != nil {
			t.Fatalf("%s: %v", engine, err)
		}
		turn, _, err := answer.Turn(0, 7, time.Now())
		answer.Done()
		var ids []int32
		for _, asked := range s.Turns() {
			ids = append(ids, asked.Sampled...)
		}
		if err != nil || turn.Parts != 3 || !slices.Equal(turn.TokenIDs, ids) || len(turn.VersionSpans) != 3 ||
			turn.VersionSpans[2].Version != 3 {
			t.Errorf("%s: %d of %d tokens, in %d parts of the versions %+v: %v", engine, len(turn.TokenIDs), len(ids),
				turn.Parts, turn.VersionSpans, err)
		}
		if conv.Begun == nil || !slices.Equal(conv.Begun.Versions,
			events.SpansBetween(turn.VersionSpans, 0, len(conv.Begun.TokenIDs))) {
			t.Errorf("%s: recorded are %+v, want %+v", engine, conv.Begun, turn.VersionSpans)
		}
		if turn.Content != "I read it now." || turn.Reasoning == nil || len(turn.ToolCalls) != 1 {
			t.Errorf("%s: the message is %q with %d calls", engine, turn.Content, len(turn.ToolCalls))
		}
	}
}

// TestBegunAnswers: the rest of an answer has the rest of its tokens, and none where
// all are there. What is recorded behind another prompt is not used, and a server of
// another kind goes on with none.
func TestBegunAnswers(t *testing.T) {
	for engine, as := range streaming {
		s := as(tokenstest.New(t, "Qwen3", func(string) (string, string) { return strings.Repeat("on and ", 50), "" }))
		k := newTalk(t, s)
		k.most = 40
		first, err := k.ask()
		if err != nil {
			t.Fatal(err)
		}
		first.Done()
		prompt := s.Turns()[0].Prompt
		begin := func(n int, prompt []int32, kind string) *events.UnderWay {
			u, err := (*events.UnderWay)(nil).Add(events.PieceSampled{
				Prompt: events.PromptDigest(prompt), Engine: kind, TokenIDs: slices.Repeat([]int32{9}, n),
				Logprobs:     slices.Repeat([]float32{-0.25}, n),
				VersionSpans: []events.VersionSpan{{Version: 4, End: n}}, StartedAt: time.Unix(1, 0), LatencyMS: 60_000,
			})
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		own := k.conversation().Engine
		for name, c := range map[string]struct {
			begun       *events.UnderWay
			asked, left int
		}{
			"begun": {begin(30, prompt, own), 1, 10}, "whole": {begin(40, prompt, own), 0, 0},
			"longer":                         {begin(41, prompt, own), 0, 0},
			"another prompt":                 {begin(30, prompt[1:], own), 1, 40},
			"another prompt of another kind": {begin(30, prompt[1:], "other"), 1, 40},
		} {
			before := len(s.Turns())
			conv := k.conversation()
			recording(&conv)
			conv.Begun = c.begun
			answer, err := k.complete(conv)
			if err != nil {
				t.Fatalf("%s, %s: %v", engine, name, err)
			}
			turn, _, err := answer.Turn(0, 7, time.Now())
			answer.Done()
			asked := s.Turns()[before:]
			if err != nil || len(asked) != c.asked || len(asked) == 1 && len(asked[0].Sampled) != c.left ||
				turn.FinishReason != events.FinishLength {
				t.Errorf("%s, %s: asked %d times, ended with %s: %v", engine, name, len(asked), turn.FinishReason, err)
			}
			if own := len(turn.TokenIDs) - c.left; own > 0 &&
				(turn.Logprobs[own-1] != -0.25 || turn.PolicyVersion != 4 && turn.VersionSpans[0].Version != 4 ||
					turn.SamplingTime() < time.Minute) {
				t.Errorf("%s, %s: %+v", engine, name, turn)
			}
			if said := s.Tokenizer.Decode(turn.TokenIDs); turn.Content != said {
				t.Errorf("%s, %s: the message is %q, and what was sampled %q", engine, name, turn.Content, said)
			}
		}
		conv := k.conversation()
		recording(&conv)
		conv.Begun = begin(30, prompt, "other")
		if _, err := k.complete(conv); !errors.Is(err, inference.ErrBegun) || !strings.Contains(err.Error(),
			"a server of another kind (other) has sampled them, and this one is "+own) {
			t.Errorf("%s behind another: %v", engine, err)
		}
		conv.Begun, conv.Piece = begin(30, prompt, own), nil
		if _, err := k.complete(conv); !errors.Is(err, inference.ErrBegun) || !strings.Contains(err.Error(),
			"with the settings of this request "+own) {
			t.Errorf("%s behind its own, with nothing recorded: %v", engine, err)
		}
	}
}

// stream is events that are sent as they are, in place of an answer to the prompt 5, 6. tail reads
// what comes behind them, and may be nil. sampled, if set, is told the request for the answer, and
// asked what else the server is asked.
type stream struct {
	events string
	tail   func(ctx context.Context) io.Reader
	asked  func(path, body string)

	sampled func(body []byte)
}

func (s stream) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(kind string, body io.Reader) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}},
			Body: io.NopCloser(body), Request: r}, nil
	}
	const said = `{"choices":[{"message":{"role":"assistant","content":"."}}]}`
	if body, other := map[string]string{
		"/v1/chat/completions/render":   `{"token_ids":[5,6],"sampling_params":{}}`,
		"/v1/chat/completions/derender": said,
		"/v1/tokenize":                  `{"tokens":[5,6]}`, "/server_info": `{}`,
		"/apply-template": `{"prompt":"."}`, "/tokenize": `{"tokens":[5,6]}`, "/detokenize": `{"content":"<S>"}`,
		"/v1/chat/completions": said,
	}[r.URL.Path]; other {
		if s.asked != nil && r.Body != nil {
			text, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			s.asked(r.URL.Path, string(text))
		}
		return answer("application/json", strings.NewReader(body))
	}
	if s.sampled != nil {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		s.sampled(text)
	}
	body := io.Reader(strings.NewReader(s.events))
	if s.tail != nil {
		body = io.MultiReader(body, s.tail(r.Context()))
	}
	return answer("text/event-stream", body)
}

// event is one of a stream.
func event(fields string) string { return "data: {" + fields + "}\n\n" }

// tokens is an event of so many tokens, whose choice has more fields.
func tokens(n int, more string) string {
	return event(fmt.Sprintf(`"choices":[{"token_ids":[%s7],"logprobs":{"content":[%s{"logprob":-1}]}%s}]`,
		strings.Repeat("7,", n-1), strings.Repeat(`{"logprob":-1},`, n-1), more))
}

// named is the event that names the prompt, other one that names another, and
// end that of the last token.
var (
	named = event(`"prompt_token_ids":[5,6],"choices":[]`)
	other = event(`"prompt_token_ids":[5],"choices":[]`)
	end   = tokens(1, `,"finish_reason":"stop"`)
)

// complete asks a server for an answer of at most 1,000 tokens, and counts those that are recorded.
func complete(ctx context.Context, client inference.Client) (answer *inference.Response,
	recorded []events.PieceSampled, err error) {
	return completeAt(ctx, client, inference.EngineVLLM)
}

func completeAt(ctx context.Context, client inference.Client,
	engine string) (answer *inference.Response, recorded []events.PieceSampled, err error) {
	conv := inference.Conversation{
		Engine:  engine,
		Request: inference.Request{Messages: []inference.Message{{Role: "user", Content: "."}}},
		Piece: func(ctx context.Context, p events.PieceSampled) error {
			recorded = append(recorded, p)
			return ctx.Err()
		},
	}
	client.MaxTokens = 1000
	answer, err = client.CompleteTokens(ctx, "http://streaming/v1", conv,
		func(int) (int, *inference.Failure) { return 1000, nil })
	return answer, recorded, err
}

// count is how many tokens pieces have.
func count(pieces []events.PieceSampled) (n int) {
	for _, p := range pieces {
		n += len(p.TokenIDs)
	}
	return n
}

// clientOf is a client of a server in memory.
func clientOf(server http.RoundTripper) inference.Client {
	return inference.Client{HTTP: &http.Client{Transport: server}}
}

// TestHostileStreams: a stream that is none of an answer costs a try, and says why. Tokens that
// came before are recorded, where the server has named the prompt before them; others are not.
func TestHostileStreams(t *testing.T) {
	good := named + tokens(2, "")
	many := strings.Repeat(tokens(100, ""), 6)
	for name, c := range map[string]struct {
		stream    string
		says      string
		recorded  int
		permanent bool
	}{
		"nothing":          {"", "the stream ended within the answer", 0, false},
		"no end":           {good, "the stream ended within the answer", 2, false},
		"done without end": {good + "data: [DONE]\n\n" + end, "the stream ended within the answer", 2, false},
		"no JSON":          {good + "data: {\n\n", "unexpected end", 2, false},
		"an error": {good + event(`"error":{"message":"the engine is dead","code":500}`),
			"the engine is dead", 2, false},
		"two choices": {good + event(`"choices":[{},{}]`), "2 choices", 2, false},
		"no log-probability": {good + event(`"choices":[{"token_ids":[7]}]`),
			"1 token ids and 0 log-probabilities", 2, false},
		"null log-probability": {good +
			event(`"choices":[{"token_ids":[7],"logprobs":{"content":[{"logprob":null}]}}]`), "has null", 2, false},
		"of another token": {good +
			event(`"choices":[{"token_ids":[7],"logprobs":{"content":[{"token_id":8,"logprob":-1}]}}]`),
			"token 2 is 7, and its log-probability is of another one", 2, false},
		"another prompt":         {other + good + end, "another prompt", 0, false},
		"another prompt late":    {many + other + end, "another prompt", 0, false},
		"another prompt at last": {named + many + other + end, "another prompt", 600, false},
		"another behind the end": {many + end + other, "another prompt", 0, false},
		"no prompt":              {many, "the stream ended within the answer", 0, false},
		"behind the end":         {named + end + tokens(2, ""), "goes on behind the end", 0, false},
		"behind a long answer":   {named + many + end + tokens(2, ""), "goes on behind the end", 600, false},
		"more than asked for": {named + strings.Repeat(tokens(100, ""), 11),
			"more than the 1000 tokens", 1000, false},
		"too long":       {": " + strings.Repeat("x", 30<<20) + "\n", "more than", 0, true},
		"too many lines": {strings.Repeat(": keep alive\n", 3<<20), "more than", 0, true},
	} {
		_, recorded, err := complete(t.Context(), clientOf(stream{events: c.stream}))
		failure, is := errors.AsType[*inference.Failure](err)
		if !is || failure.Permanent != c.permanent || !strings.Contains(failure.Error(), c.says) ||
			count(recorded) != c.recorded {
			t.Errorf("%s: %d tokens are recorded, and %v", name, count(recorded), err)
		}
	}
}

// TestEndedStreams: an answer that has come to its end is whole, whatever becomes of
// its stream behind that, and the end is not recorded as if there were more. What there
// is of the stream is read.
func TestEndedStreams(t *testing.T) {
	whole := named + tokens(2, "") + end
	for name, c := range map[string]struct {
		behind string
		broken io.Reader
		waits  time.Duration
	}{
		"as it should be": {event(`"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3}`) +
			"data: [DONE]\n\n", nil, 0},
		"nothing":       {"", nil, 0},
		"a broken line": {"", dead{}, 0},
		"an error":      {event(`"error":{"message":"the engine is dead","code":500}`), nil, 0},
		"no JSON":       {"data: {\n\n", nil, 0},
		"too long":      {": " + strings.Repeat("x", 30<<20) + "\n", nil, 0},
		"silence":       {"", stopped{}, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				read, began := &readers{}, time.Now()
				server := stream{events: whole + c.behind, tail: func(ctx context.Context) io.Reader {
					if _, waits := c.broken.(stopped); waits {
						return io.MultiReader(stopped{func() {}, ctx}, read)
					}
					if c.broken != nil {
						return io.MultiReader(c.broken, read)
					}
					return read
				}}
				answer, recorded, err := complete(t.Context(), clientOf(server))
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Done()
				turn, _, err := answer.Turn(0, 7, time.Now())
				if err != nil || !slices.Equal(turn.TokenIDs, []int32{7, 7, 7}) ||
					!slices.Equal(turn.Logprobs, []float32{-1, -1, -1}) ||
					turn.FinishReason != events.FinishStop || len(recorded) > 0 {
					t.Errorf("%d tokens are recorded, and %v of the turn, which ended with %q: %v", count(recorded),
						turn.TokenIDs, turn.FinishReason, err)
				}
				if toEnd := c.broken == nil && name != "too long"; read.asked != toEnd || time.Since(began) != c.waits {
					t.Errorf("read to its end: %v, after %s", read.asked, time.Since(began))
				}
			})
		})
	}
}

// readers notes that a body is read to its end.
type readers struct{ asked bool }

func (r *readers) Read([]byte) (int, error) {
	r.asked = true
	return 0, io.EOF
}

// TestFailedStream: an answer that the server ends because it failed is none, and
// its tokens are recorded.
func TestFailedStream(t *testing.T) {
	answer, recorded, err := complete(t.Context(), clientOf(stream{events: named + tokens(2, "") +
		tokens(1, `,"finish_reason":"error"`)}))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Done()
	if answer.GaveUp("a") == nil || count(recorded) != 3 {
		t.Errorf("%d tokens are recorded, and the answer ended with %+v", count(recorded), answer.GaveUp("a"))
	}
}

// TestSilentStreams: a server may pause within a stream as long as the caller lets an answer take,
// unless he bounds its silence.
func TestSilentStreams(t *testing.T) {
	for bound, after := range map[time.Duration]time.Duration{0: 10 * time.Minute, 4 * time.Minute: 4 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			server := stream{events: named + tokens(2, ""), tail: func(ctx context.Context) io.Reader {
				return io.MultiReader(paused{ctx, 10 * time.Minute}, strings.NewReader(end))
			}}
			client := clientOf(server)
			client.BetweenBytes = bound
			answer, recorded, err := complete(t.Context(), client)
			if took := time.Since(began); took != after {
				t.Errorf("bounded by %s, it took %s", bound, took)
			}
			failure, is := errors.AsType[*inference.Failure](err)
			if bound > 0 && (!is || !failure.Timeout() || !strings.Contains(failure.Error(), "between_bytes") ||
				count(recorded) != 2) || bound == 0 && err != nil {
				t.Errorf("bounded by %s: %d tokens are recorded, and %v", bound, count(recorded), err)
			}
			answer.Done()
		})
	}
}

// paused is silent for a while, and then at its end.
type paused struct {
	ctx context.Context
	d   time.Duration
}

func (p paused) Read([]byte) (int, error) {
	if !retry.Sleep(p.ctx, p.d) {
		return 0, p.ctx.Err()
	}
	return 0, io.EOF
}

// TestStoppedGenerator: what has come of an answer is recorded when its generator is stopped.
func TestStoppedGenerator(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	_, recorded, err := complete(ctx, clientOf(stream{events: named + tokens(2, ""),
		tail: func(ctx context.Context) io.Reader { return stopped{stop, ctx} }}))
	if !errors.Is(err, context.Canceled) || count(recorded) != 2 {
		t.Errorf("%d tokens are recorded: %v", count(recorded), err)
	}
}

// stopped is silent until its client is stopped, which it is told to.
type stopped struct {
	stop func()
	ctx  context.Context
}

func (s stopped) Read([]byte) (int, error) {
	s.stop()
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// scripted answers each request for tokens, or for the message where reads is set, with the next of
// its answers; the last one again and again.
type scripted struct {
	answers []func(r *http.Request) (*http.Response, error)
	reads   bool
	asked   int
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/derender") != s.reads || strings.HasSuffix(r.URL.Path, "/render") {
		return stream{events: named + tokens(2, "") + end}.RoundTrip(r)
	}
	say := s.answers[min(s.asked, len(s.answers)-1)]
	s.asked++
	return say(r)
}

// saying is an answer of JSON.
func saying(status int, body string) func(r *http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
}

// TestRefusedStreams: a server that says itself that it does not stream is asked for whole answers.
// One that says something else, or has given tokens, is not.
func TestRefusedStreams(t *testing.T) {
	message := func(text string) string { return fmt.Sprintf(`{"error":{"message":%q,"code":400}}`, text) }
	refusal := message("stream=True is not supported")
	for name, c := range map[string]struct {
		answer       func(r *http.Request) (*http.Response, error)
		asked, tells int
	}{
		"no stream":           {saying(http.StatusBadRequest, refusal), 2, 0},
		"in place of a token": {stream{events: "data: " + refusal + "\n\n"}.RoundTrip, 2, 0},
		// http://streaming
		"a name with stream": {saying(http.StatusBadRequest, message("max_tokens is too large")), 1, 0},
		"behind tokens":      {stream{events: named + tokens(2, "") + "data: " + refusal + "\n\n"}.RoundTrip, 1, 2},
		"a fault that it is": {saying(http.StatusInternalServerError, refusal), 2, 0},
		"another status":     {saying(http.StatusServiceUnavailable, refusal), 1, 0},
	} {
		server := &scripted{answers: []func(r *http.Request) (*http.Response, error){c.answer}}
		_, recorded, err := complete(t.Context(), clientOf(server))
		if err == nil || server.asked != c.asked || count(recorded) != c.tells {
			t.Errorf("%s: asked %d times, %d tokens are recorded: %v", name, server.asked, count(recorded), err)
		}
	}
}

// TestPartsOfStreams: where a server goes away within the rest of an answer, of which tokens are
// recorded then, the rest is not asked for behind fewer tokens than these. The time of a piece is
// the server's, without the rests between parts.
func TestPartsOfStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		server := &scripted{answers: []func(r *http.Request) (*http.Response, error){
			stream{events: named + tokens(2, `,"finish_reason":"abort"`)}.RoundTrip,
			func(r *http.Request) (*http.Response, error) {
				rest := event(`"prompt_token_ids":[5,6,7,7],"choices":[]`) + tokens(3, "") +
					event(`"error":{"message":"overloaded","code":503}`)
				return stream{tail: func(ctx context.Context) io.Reader {
					return io.MultiReader(paused{ctx, 3 * time.Second}, strings.NewReader(rest))
				}}.RoundTrip(r)
			},
		}}
		_, recorded, err := complete(t.Context(), clientOf(server))
		failure, is := errors.AsType[*inference.Failure](err)
		if !is || !failure.Away || server.asked != 2 || len(recorded) != 2 || count(recorded) != 5 {
			t.Fatalf("asked %d times, %+v are recorded: %v", server.asked, recorded, err)
		}
		if p := recorded[1]; p.LatencyMS != 3000 || p.Offset != 2 || !p.StartedAt.After(began) {
			t.Errorf("the second piece is %+v", p)
		}
	})
}

// TestReadingAgain: a server that goes away when its answer is still to be read is asked to read it
// when it is back, and samples nothing again.
func TestReadingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := &scripted{reads: true, answers: []func(r *http.Request) (*http.Response, error){
			func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
			func(*http.Request) (*http.Response, error) {
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			},
			saying(http.StatusServiceUnavailable, "{}"),
			stream{}.RoundTrip,
		}}
		answer, _, err := complete(t.Context(), clientOf(reads))
		if err != nil || answer.Choices[0].Message.Content != "." || reads.asked != 4 {
			t.Errorf("asked %d times: %v", reads.asked, err)
		}
		answer.Done()
		reads.asked, reads.answers = 0, []func(r *http.Request) (*http.Response,
			error){saying(http.StatusInternalServerError, "{}")}
		if _, _, err := complete(t.Context(), clientOf(reads)); err == nil || reads.asked != 1 {
			t.Errorf("where it fails, it was asked %d times: %v", reads.asked, err)
		}
	})
}
