package fleet

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/probe"
)

// streamer is a server that says what it is told to, one answer for each request; asked are these.
type streamer struct {
	says  []string
	asked []bool // for a stream
}

func (s *streamer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodGet || len(s.says) == 0 {
		http.NotFound(w, r)
		return
	}
	s.asked = append(s.asked, strings.Contains(string(body), `"stream":true`))
	say := s.says[0]
	s.says = s.says[1:]
	switch {
	case strings.HasPrefix(say, "data:"):
		w.Header().Set("Content-Type", "text/event-stream")
	case strings.HasPrefix(say, "refused"):
		w.WriteHeader(http.StatusBadRequest)
	}
	io.WriteString(w, say)
}

// Answers of streamers.
const (
	refusesStreams = "refused: return_token_ids is not supported with streaming"
	begins         = `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n"
	textAlone      = begins + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	withTokens     = `data: {"prompt_token_ids":[1],"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[2],"logprobs":{"content":[{"token":"a","logprob":-1}]},"finish_reason":"stop"}]}` + "\n\n"
	aborts         = begins + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}` + "\n\n"
	roleOnly       = `data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}` + "\n\n"
	wholeText      = `{"choices":[{"finish_reason":"stop","message":{"content":"a"}}]}`
	wholeTokens    = `{"prompt_token_ids":[1],"choices":[{"finish_reason":"stop","message":{"content":"a"},"token_ids":[2],"logprobs":{"content":[{"token":"a","logprob":-1}]}}]}`
	contradiction  = `{"prompt_token_ids":[1],"choices":[{"finish_reason":"stop","message":{"content":"a"},"token_ids":[2,3],"logprobs":{"content":[{"token":"a","logprob":-1}]}}]}`
)

// streamers are servers and a fleet that asks them.
func streamers(t *testing.T, says ...[]string) (f *Fleet, servers []*streamer, hosts []string) {
	t.Helper()
	for _, list := range says {
		s := &streamer{says: list}
		server := httptest.NewServer(s)
		t.Cleanup(server.Close)
		servers, hosts = append(servers, s), append(hosts, server.Listener.Addr().String())
	}
	f, err := New(DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	return f, servers, hosts
}

// TestToldAnswersAreNotBegunAnew: another server is asked while nothing was told, and not behind
// that, not even by a call that waits for servers.
func TestToldAnswersAreNotBegunAnew(t *testing.T) {
	for name, c := range map[string]struct {
		says  string
		again bool
	}{"nothing told": {roleOnly, true}, "told and broken off": {begins, false}, "told and aborted": {aborts, false}} {
		for _, patient := range []bool{false, true} {
			t.Run(fmt.Sprint(name, patient), func(t *testing.T) {
				f, servers, hosts := streamers(t, []string{c.says}, []string{withTokens, withTokens})
				ask, told := call(home(t, f, hosts[0], hosts...), 4, hosts...), ""
				ask.Follow, ask.Patient, ask.TextOnly = func(d inference.Delta) { told += d.Content }, patient, true
				answer, err := f.Complete(t.Context(), ask)
				answer.Done()
				if asked := len(servers[1].asked); c.again != (err == nil) || c.again != (asked == 1) || told != "a" {
					t.Errorf("the other server was asked %d times, told %q: %v", asked, told, err)
				}
				if failure, is := errors.AsType[*inference.Failure](err); !c.again && (!is || failure.Permanent) {
					t.Errorf("%+v", err)
				}
			})
		}
	}
}

// TestStreamsCostNoTokens: a server that refuses streams is not asked for one again. One whose
// streams have no usable tokens is asked for whole answers, unless these have none either.
func TestStreamsCostNoTokens(t *testing.T) {
	for name, c := range map[string]struct {
		says []string
		want string // for each request: s a stream, w a whole answer
		cold bool   // the run samples otherwise than the model does
	}{
		"tokens in streams":       {[]string{withTokens, withTokens}, "ss", false},
		"refuses":                 {[]string{refusesStreams, wholeText, wholeText, wholeTokens}, "swww", false},
		"none in streams":         {[]string{textAlone, wholeTokens, wholeTokens}, "sww", false},
		"none at all":             {[]string{textAlone, wholeText, textAlone, textAlone}, "swss", false},
		"none once":               {[]string{textAlone, contradiction, wholeTokens}, "sww", false},
		"no streams":              {[]string{wholeTokens, wholeTokens}, "ss", false},
		"no streams and none":     {[]string{wholeText, wholeText}, "ss", false},
		"tokens of a whole one":   {[]string{contradiction, withTokens}, "ss", false},
		"a contradiction in both": {[]string{"data: " + contradictionChunk + "\n\n", wholeTokens}, "sw", false},
		"none for a while":        {[]string{textAlone, wholeText, wholeTokens, wholeTokens}, "swsw", false},
		"words are wanted":        {[]string{textAlone, textAlone, withTokens}, "sss", false},
		"measured":                {[]string{withTokens, wholeTokens, wholeTokens, wholeTokens}, "swww", true},
		"wrong for the run":       {[]string{withTokens, withTokens}, "ss", true},
	} {
		t.Run(name, func(t *testing.T) {
			f, servers, hosts := streamers(t, c.says)
			if name == "wrong for the run" {
				d := f.distributions.entry("http://" + hosts[0] + "/v1 p")
				d.at, d.found.Temperature = time.Now(), probe.Raw
			}
			told := ""
			for len(servers[0].says) > 0 {
				ask := call("a", 4, hosts...)
				ask.Follow, ask.TextOnly = func(d inference.Delta) { told += d.Content }, true
				if c.cold {
					ask.Sampling.Temperature = 0.5
				}
				told, ask.Words = "", name == "words are wanted"
				answer, err := f.Complete(t.Context(), ask)
				if err != nil {
					t.Fatal(err)
				}
				answer.Done()
				if len(told) > 1 {
					t.Errorf("told %q", told)
				}
			}
			got := ""
			for _, stream := range servers[0].asked {
				got += map[bool]string{true: "s", false: "w"}[stream]
			}
			if got != c.want {
				t.Errorf("asked %s, want %s", got, c.want)
			}
		})
	}
}

const contradictionChunk = `{"prompt_token_ids":[1],"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[2,3],"logprobs":{"content":[{"token":"a","logprob":-1}]},"finish_reason":"stop"}]}`

// TestStreamsAreForgotten: what one answer has told of a server's streams is not
// taken as known for ever.
func TestStreamsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := New(DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		at := target{replica: &replica{}}
		f.noStreams(at)
		for _, want := range []bool{false, true} {
			time.Sleep(knownFor - time.Minute)
			if f.streams(at) != want {
				t.Errorf("asked for a stream: %t, want %t", !want, want)
			}
		}
	})
}
