package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/tokenstest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// Two images of 3 by 2 pixels.
const (
	redPNG   = "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM8wQAFTDAGAwAPFADMILIQogAAAABJRU5ErkJggg=="
	greenPNG = "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEUlEQVR4nGNkOMEAAUwMMAAADkwAzJ2EfDUAAAAASUVORK5CYII="
)

func picture(data string) message {
	return message{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64," + data}}
}

func showing(text, data string) message {
	return message{"role": "user", "content": []any{message{"type": "text", "text": text}, picture(data)}}
}

func sees(c *runfile.RunConfig) { c.Vision = true }

// sawImages are the data of the images in a request to the server, in their order.
func sawImages(a ask) (seen []string) {
	for _, m := range a.Messages {
		list, _ := m["content"].([]any)
		for _, p := range list {
			if url, ok := p.(map[string]any)["image_url"].(map[string]any); ok {
				seen = append(seen, strings.TrimPrefix(url["url"].(string), "data:image/png;base64,"))
			}
		}
	}
	return seen
}

// TestImages: a conversation with an image is one sample, which has the image by its digest as the
// events do, and the store has its bytes once. One with another image in that place is another
// conversation, although its tokens are the same.
func TestImages(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, sees)
	m := p.start(map[string]any{"size": 1})
	first := p.say(m, showing("What is it?", redPNG))
	p.say(m, append(first, user("And now?"))...)
	p.say(m, append([]message{showing("What is it?", greenPNG)}, append(first[1:], user("And now?"))...)...)
	turns := p.rollout(m).Turns
	if len(turns) != 3 || turns[1].NewSegment || turns[1].After == nil ||
		!turns[2].NewSegment || turns[2].After != nil {
		t.Fatalf("recorded %+v", turns)
	}
	red, green := turns[0].Prompt[0].Images, turns[2].Prompt[0].Images
	if len(red) != 1 || len(green) != 1 || red[0].SHA256 == green[0].SHA256 || len(turns[1].Prompt) != 1 ||
		turns[0].Prompt[0].Content != "What is it?"+red[0].Name() {
		t.Fatalf("images %+v and %+v", red, green)
	}
	for i, want := range [][]string{{redPNG}, {redPNG}, {greenPNG}} {
		if got := sawImages(b.seen()[i]); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("request %d shows %v", i, got)
		}
	}
	for _, image := range []storage.Image{red[0], green[0]} {
		if data, err := storage.GetBlob(t.Context(), p.log.Store(), image.Ref); err != nil ||
			storage.Digest(data) != image.SHA256 {
			t.Errorf("%s: %v", image.Name(), err)
		}
	}
	body, err := json.Marshal(turns)
	if err != nil || strings.Contains(string(body), redPNG[:40]) {
		t.Errorf("the events hold the image: %v", err)
	}
	p.finish(m, 1)
	samples := p.trajectory(m).Samples()
	if len(samples) != 2 || fmt.Sprint(samples[0].Images) != fmt.Sprint(red) ||
		fmt.Sprint(samples[1].Images) != fmt.Sprint(green) {
		t.Errorf("samples with %+v", samples)
	}
	ready := servicetest.WaitData[events.BatchReady](t, p.log, "r", events.BatchReadyType, "trainer")
	file, err := storage.GetBlob(t.Context(), p.log.Store(), ready.Files[0])
	if err != nil {
		t.Fatal(err)
	}
	batch, err := storage.DecodeBatch(file)
	if err != nil || len(batch.Samples) != 2 ||
		fmt.Sprint(batch.Samples[0].Images, batch.Samples[1].Images) != fmt.Sprint(red, green) {
		t.Errorf("the batch has %+v, %v", batch, err)
	}
	p.prove(0)
}

// TestImagesBehindBranches: a sample that begins behind a turn has the images of all of its prompt,
// in their order, each once.
func TestImagesBehindBranches(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, sees)
	m := p.start(map[string]any{"size": 1})
	first := p.say(m, showing("One?", redPNG))
	p.say(m, append(first, showing("Two?", greenPNG))...)
	p.say(m, append(first, showing("Or this?", greenPNG), showing("Both?", redPNG))...)
	p.finish(m, 1)
	samples := p.trajectory(m).Samples()
	var got []string
	for _, s := range samples {
		for _, i := range s.Images {
			got = append(got, i.SHA256[:4])
		}
		got = append(got, "|")
	}
	r, g := storage.Digest(decoded(t, redPNG))[:4], storage.Digest(decoded(t, greenPNG))[:4]
	if want := []string{r, g, "|", r, g, r, "|"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("samples with the images %v, want %v", got, want)
	}
	p.prove(0)
}

// TestImagesRefused: a run that does not say that its model sees images has none, and
// the server is not asked.
func TestImagesRefused(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, nil)
	m := p.start(nil)
	if got := p.post(m.chat(), map[string]any{"messages": []any{showing("What is it?", redPNG)}}, http.StatusBadRequest,
		nil); !strings.Contains(string(got.body), "vision: true") {
		t.Errorf("answered %s", got.body)
	}
	if len(b.seen()) > 0 || len(p.rollout(m).Turns) > 0 {
		t.Error("it was asked for")
	}
}

// TestImagesAreNotCounted: servers count images otherwise than they sample behind them.
func TestImagesAreNotCounted(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, sees)
	m := p.start(nil)
	block := map[string]any{"type": "image", "source": map[string]any{"type": "base64", "media_type": "image/png",
		"data": redPNG}}
	p.post("/rollouts/"+m.ID+"/v1/messages/count_tokens",
		map[string]any{"messages": []any{message{"role": "user", "content": []any{block}}}}, http.StatusNotFound, nil)
}

// TestHashesForPlaceholders: an answer whose prompt has hashes in the place of an image's tokens is
// text, says so, and is not trained on.
func TestHashesForPlaceholders(t *testing.T) {
	t.Parallel()
	b := newBackend(t, func(n int, _ ask) said {
		return said{content: text(n), beside: func(whole, _ map[string]any, prompt, _ []int32) {
			prompt[3] = 1<<29 + 7
			whole["prompt_token_ids"] = prompt
		}}
	})
	p := newPlane(t, b.url, sees)
	m := p.start(map[string]any{"size": 1})
	p.say(m, showing("What is it?", redPNG))
	turn := p.rollout(m).Turns[0]
	if !turn.TextOnly || fmt.Sprint(turn.Lacks) != "["+events.LackImages+"]" ||
		len(turn.TokenIDs)+len(turn.PromptDelta) > 0 {
		t.Errorf("recorded %+v", turn)
	}
	p.finish(m, 1)
	if tr := p.trajectory(m); !tr.TextOnly || len(tr.Messages[0].Images) != 1 {
		t.Errorf("the trajectory is %+v", tr)
	}
}

func decoded(t *testing.T, text string) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestImagesByTokens: in a run that asks by tokens a conversation is asked for by messages from its
// first image on, and its sample says so. Another one is asked for by tokens.
func TestImagesByTokens(t *testing.T) {
	t.Parallel()
	s := tokenstest.New(t, "Qwen3", nil)
	s.Say = func(string) (string, string) { return s.Template.Answer("", "Done.", ""), "" }
	b := newBackend(t, counts)
	chats := httputil.NewSingleHostReverseProxy(parsed(t, b.url))
	both := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" {
			s.Config.Handler.ServeHTTP(w, r)
			return
		}
		r.URL.Path = "/chat/completions"
		chats.ServeHTTP(w, r)
	}))
	t.Cleanup(both.Close)
	p := newPlane(t, both.URL+"/v1", func(c *runfile.RunConfig) { c.EndpointAPI, c.Vision = runfile.APITokens, true })
	m := p.start(map[string]any{"size": 1})
	talk := p.say(m, user("Mend it."))
	talk = p.say(m, append(talk, showing("It looks like this.", redPNG))...)
	p.say(m, append(talk, user("Is it so?"))...)
	p.say(m, user("A title."))
	p.say(m, showing("Another one.", greenPNG))
	var got []string
	for _, turn := range p.rollout(m).Turns {
		got = append(got, fmt.Sprintf("%t %s %t", turn.NewSegment, turn.SegmentCause, turn.TextOnly))
	}
	want := []string{"true  false", "true images false", "false  false", "true compacted false", "true compacted false"}
	if !slices.Equal(got, want) {
		t.Errorf("turns %q, want %q", got, want)
	}
	if n := len(b.seen()); n != 3 {
		t.Errorf("%d turns were asked for by messages, want 3", n)
	}
	other := p.start(map[string]any{"size": 1})
	p.say(other, showing("What is it?", redPNG))
	if turn := p.rollout(other).Turns[0]; turn.SegmentCause != events.CauseImages {
		t.Errorf("a rollout that begins with an image says %q", turn.SegmentCause)
	}
	p.finish(m, 1)
	p.finish(other, 1)
	p.prove(0)
}

func parsed(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
