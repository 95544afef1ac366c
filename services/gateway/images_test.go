package gateway

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// Two images of 3 by 2 pixels.
const (
	pixel = "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM8wQAFTDAGAwAPFADMILIQogAAAABJRU5ErkJggg=="
	other = "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEUlEQVR4nGNkOMEAAUwMMAAADkwAzJ2EfDUAAAAASUVORK5CYII="
)

func shown(data string) map[string]any {
	return map[string]any{"max_tokens": 9, "messages": []any{map[string]any{"role": "user", "content": []any{
		map[string]any{"type": "text", "text": "What is it?"},
		map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64," + data}}}}}}
}

// TestImagesAreCompared: a request with the same image is the same one, in any dialect, and one
// with another image of that size is another.
func TestImagesAreCompared(t *testing.T) {
	a, b := askOf(t, dialects.Chat{}, shown(pixel)), askOf(t, dialects.Chat{}, shown(other))
	block := map[string]any{"type": "image", "source": map[string]any{"type": "base64", "media_type": "image/webp",
		"data": pixel}}
	same := askOf(t, dialects.Messages{}, map[string]any{"max_tokens": 9,
		"messages": []any{map[string]any{"role": "user",
			"content": []any{map[string]any{"type": "text", "text": "What is it?"}, block}}}})
	d := newDigests()
	if d.of(a) != d.of(same) || d.of(a) == d.of(b) {
		t.Error("the digests do not tell the images")
	}
	is := defaults{}.same
	if !is(a.Conversation[0], same.Conversation[0]) || is(a.Conversation[0], b.Conversation[0]) {
		t.Error("the messages do not tell the images")
	}
	spaced := a.Conversation[0]
	spaced.Content, spaced.Images = "  "+spaced.Content+"\n", []storage.Image{spaced.Images[0]}
	spaced.Images[0].At += 2
	moved := a.Conversation[0]
	moved.Images = []storage.Image{moved.Images[0]}
	moved.Images[0].At--
	named := a.Conversation[0] // the name of the image as a text
	named.Images = nil
	if !is(a.Conversation[0], spaced) || is(a.Conversation[0], moved) || is(a.Conversation[0], named) {
		t.Error("the messages do not tell where the images are")
	}
}

// TestPlaceholders: a prompt with numbers that no vocabulary has is no prompt of tokens.
func TestPlaceholders(t *testing.T) {
	for _, c := range []struct {
		id   int32
		text bool
	}{{tokencheck.NoToken - 1, false}, {tokencheck.NoToken, true}} {
		turn := events.TurnSampled{TokenIDs: []int32{7}, Logprobs: []float32{-1},
			VersionSpans: []events.VersionSpan{{End: 1}}}
		prompt := withoutPlaceholders(&turn, []int32{1, c.id, c.id})
		if turn.TextOnly != c.text || (prompt == nil) != c.text ||
			(len(turn.TokenIDs)+len(turn.Logprobs)+len(turn.VersionSpans) == 0) != c.text ||
			len(turn.Lacks) == 1 != c.text {
			t.Errorf("%d: %+v, %v", c.id, turn, prompt)
		}
	}
}

// TestImageCause: in a run that asks by tokens a sample says that it was asked for by messages,
// unless the harness has begun it for another reason.
func TestImageCause(t *testing.T) {
	for _, c := range []struct {
		api, was, want string
		begins         bool
	}{
		{runfile.APITokens, "", events.CauseImages, true},
		{runfile.APITokens, events.CauseDrift, events.CauseImages, true},
		{runfile.APITokens, events.CauseSystem, events.CauseSystem, true},
		{runfile.APITokens, "", "", false},
		{"", events.CauseDrift, events.CauseDrift, true},
	} {
		a := askOf(t, dialects.Chat{}, shown(pixel))
		a.cfg = &runfile.RunConfig{EndpointAPI: c.api}
		turn := events.TurnSampled{NewSegment: c.begins, SegmentCause: c.was}
		if a.noteImages(&turn); turn.SegmentCause != c.want {
			t.Errorf("%+v: %q", c, turn.SegmentCause)
		}
	}
}

// TestEstimatedImages: where the server counts nothing, an image is estimated by its
// pixels and not by its bytes.
func TestEstimatedImages(t *testing.T) {
	a := askOf(t, dialects.Chat{}, shown(pixel))
	a.Conversation[0].Images[0].Size = 8 << 20
	a.Conversation[0].Images[0].Width, a.Conversation[0].Images[0].Height = 560, 280
	turn := events.TurnSampled{PromptTokens: 1000 + events.EstimatedTokens((8<<20+2)/3*4)}
	if a.estimateImages(&turn); turn.PromptTokens != 1200 {
		t.Errorf("%d tokens, want 1200", turn.PromptTokens)
	}
}

// TestSegmentImages: the samples of a trajectory have the images that intake and
// audit expect of its turns.
func TestSegmentImages(t *testing.T) {
	turn := func(n int, after int, begins, text bool, names ...string) events.TurnSampled {
		s := events.TurnSampled{Turn: n, NewSegment: begins, TextOnly: text}
		if after >= 0 {
			s.After = &after
		}
		for _, name := range names {
			s.Prompt = append(s.Prompt, events.PromptMessage{Role: "user",
				Images: []storage.Image{{MediaType: name, At: n}}})
		}
		if !text {
			s.PromptDelta, s.TokenIDs, s.Logprobs = []int32{1}, []int32{2}, []float32{-1}
		}
		return s
	}
	turns := []events.TurnSampled{
		turn(0, -1, true, false, "a", "b"), turn(1, 0, false, false, "c"), turn(2, 0, true, false, "d"),
		turn(3, 1, false, false),
		turn(4, -1, true, false), turn(5, 3, true, false), turn(6, 2, false, false, "e"),
	}
	text := append(turns[:len(turns):len(turns)], turn(7, 1, true, true, "f"))
	for name, c := range map[string]struct {
		turns []events.TurnSampled
		left  []int
		want  string
	}{
		"all":                 {turns, nil, "abc abde  abc"},
		"as text":             {text, nil, "abc de   f"},
		"left in a segment":   {turns, []int{1}, "ab abde abc  abc"},
		"left where it began": {turns, []int{2}, "abc  abc abde"},
		"left, as text":       {text, []int{1}, "ab de c   cf"},
	} {
		r := &events.Rollout{Turns: c.turns}
		if c.left != nil {
			r.Answers = []events.WorkspaceAnswered{{Agent: &events.AgentEnded{Left: c.left}}}
		}
		tr, err := trajectory(r, events.StopFinished)
		if err != nil {
			t.Fatal(err)
		}
		var shown []events.View
		for i := range c.turns {
			shown = append(shown, c.turns[i].View())
		}
		expected := events.SegmentImages(shown, c.left, tr.TextOnly)
		var words []string
		for _, images := range expected {
			word := ""
			for _, i := range images {
				word += i.MediaType
			}
			words = append(words, word)
		}
		if i := events.OtherImages(tr.Samples(), expected); i >= 0 || strings.Join(words, " ") != c.want {
			t.Errorf("%s: sample %d differs, or %q is not %q", name, i, words, c.want)
		}
	}
}
