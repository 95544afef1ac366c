package intake

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference/images"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// TestImages: a turn of an outsider's may name images that the store has, as what they are, in a
// run whose model sees images.
func TestImages(t *testing.T) {
	log := house(t)
	cfg := servicetest.Config("a")
	cfg.Vision = true
	servicetest.OpenRun(t, log, "sees", cfg)
	start(t, log)
	data, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM8wQAFTDAGAwAPFADMILIQogAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	image, err := images.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	servicetest.Blob(t, log.Store(), data)
	page := servicetest.Blob(t, log.Store(), []byte("<!doctype html><script>alert(1)</script>"))
	turn := func(n int, change func(*events.PromptMessage)) events.TurnSampled {
		return sampledTurn(n, func(s *events.TurnSampled) {
			s.Prompt = []events.PromptMessage{{Role: "user", Content: image.Name(), Images: []storage.Image{image}}}
			if change != nil {
				change(&s.Prompt[0])
			}
		})
	}
	blind := outsider{t, log, "r"}
	blind.must(events.GroupOpenedType, "x1", blind.opened())
	blind.must(events.RolloutStartedType, "x1-0", blind.started(0))
	if refused := blind.state(events.TurnSampledType, "x1-0",
		turn(0, nil)); !strings.Contains(refused, "vision: true") {
		t.Errorf("a run that sees nothing: %q", refused)
	}
	o := outsider{t, log, "sees"}
	o.must(events.GroupOpenedType, "x1", o.opened())
	o.must(events.RolloutStartedType, "x1-0", o.started(0))
	stated := func(change func(*storage.Image)) func(*events.PromptMessage) {
		return func(m *events.PromptMessage) {
			change(&m.Images[0])
			m.Content = m.Images[0].Name()
		}
	}
	for name, c := range map[string]struct {
		change func(*events.PromptMessage)
		want   string
	}{
		"of the model": {func(m *events.PromptMessage) { m.Role = "assistant" },
			"only messages of the roles user and tool"},
		"without a place": {func(m *events.PromptMessage) { m.Content = "What is it?" }, "does not stand at byte 0"},
		"behind the text": {func(m *events.PromptMessage) { m.Images[0].At = 1 << 40 }, "does not stand at byte"},
		"twice in a place": {func(m *events.PromptMessage) { m.Images = append(m.Images, m.Images[0]) },
			"behind the one before it"},
		"of another kind": {stated(func(i *storage.Image) { i.MediaType = "image/webp" }),
			"is no image of the media type and the size"},
		"of another size": {stated(func(i *storage.Image) { i.Width++ }),
			"is no image of the media type and the size"},
		"that is a page": {stated(func(i *storage.Image) { i.Ref = page }),
			"is no image of the media type and the size"},
		"that is not there": {stated(func(i *storage.Image) {
			i.SHA256 = strings.Repeat("0",
				64)
			i.Key = storage.BlobKey(i.SHA256)
		}), "the store has no object"},
		"that is no blob":   {stated(func(i *storage.Image) { i.Key = "runs/r/trajectories/x1-0.arrow" }), "blob"},
		"that is too large": {stated(func(i *storage.Image) { i.Size = storage.MaxImage + 1 }), "bytes"},
		"without end": {func(m *events.PromptMessage) {
			m.Images, m.Content = nil, strings.Repeat(image.Name(), storage.MaxImages+1)
			for n := range storage.MaxImages + 1 {
				m.Images = append(m.Images, image)
				m.Images[n].At = n * len(image.Name())
			}
		}, ""},
	} {
		refused := o.state(events.TurnSampledType, "x1-0", turn(0, c.change))
		if refused == "" || !strings.Contains(refused, c.want) {
			t.Errorf("an image %s: %q does not say %q", name, refused, c.want)
		}
	}
	hashed := turn(0, nil)
	hashed.PromptDelta = []int32{1, tokencheck.NoToken}
	if refused := o.state(events.TurnSampledType, "x1-0", hashed); !strings.Contains(refused,
		"is no token of a vocabulary") {
		t.Errorf("a hash in the place of an image's tokens: %q", refused)
	}
	half := func(m *events.PromptMessage) { // of as many as a conversation may have, and more
		m.Images, m.Content = nil, strings.Repeat(image.Name(), storage.MaxImages/2+1)
		for n := range storage.MaxImages/2 + 1 {
			m.Images = append(m.Images, image)
			m.Images[n].At = n * len(image.Name())
		}
	}
	o.must(events.TurnSampledType, "x1-0", turn(0, half))
	if refused := o.state(events.TurnSampledType, "x1-0", turn(1, half)); !strings.Contains(refused,
		"its conversation has 102 images") {
		t.Errorf("too many images in two turns: %q", refused)
	}
	other := o.finished("x1-0", func(tr *storage.Trajectory) {
		unknown := image
		unknown.Width++
		tr.Messages[0].Content, tr.Messages[0].Images = unknown.Name(), []storage.Image{unknown}
	})
	if refused := o.state(events.RolloutFinishedType, "x1-0", other); !strings.Contains(refused,
		"has an image that the rollout's turns do not have") {
		t.Errorf("a trajectory with an image of its own: %q", refused)
	}
	for name, show := range map[string]func(*storage.Message){
		"without images": func(*storage.Message) {},
		"with fewer":     func(m *storage.Message) { m.Content, m.Images = image.Name(), []storage.Image{image} },
	} {
		less := o.finished("x1-0", func(tr *storage.Trajectory) { show(&tr.Messages[0]) })
		if refused := o.state(events.RolloutFinishedType,
			"x1-0", less); !strings.Contains(refused, "the images of segment 0 are not those") {
			t.Errorf("a trajectory %s: %q", name, refused)
		}
	}
	hashes := o.finished("x1-0", func(tr *storage.Trajectory) {
		tr.Messages[0].Content, tr.Messages[0].Images = image.Name(), []storage.Image{image}
		tr.Messages[0].TokenIDs = []int32{1, tokencheck.NoToken}
	})
	if refused := o.state(events.RolloutFinishedType, "x1-0", hashes); !strings.Contains(refused,
		"segment 0 has images and an id of 1000000 or more") {
		t.Errorf("a trajectory with a hash: %q", refused)
	}
	o.must(events.RolloutFinishedType, "x1-0", o.finished("x1-0", func(tr *storage.Trajectory) {
		var m events.PromptMessage
		half(&m)
		tr.Messages[0].Content, tr.Messages[0].Images = m.Content, m.Images
	}))
}

// TestImageOnce: an image that a turn shows many times is looked at once.
func TestImageOnce(t *testing.T) {
	log := house(t)
	cfg := servicetest.Config("a")
	cfg.Vision = true
	servicetest.OpenRun(t, log, "sees", cfg)
	startWith(t, log, Quotas{MessagesPerMinute: 100, BytesPerMinute: 3 << 20})
	data, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM8wQAFTDAGAwAPFADMILIQogAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	data = append(data, make([]byte, 1<<20)...)
	image, err := images.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	servicetest.Blob(t, log.Store(), data)
	o := outsider{t, log, "sees"}
	o.must(events.GroupOpenedType, "x1", o.opened())
	o.must(events.RolloutStartedType, "x1-0", o.started(0))
	o.must(events.TurnSampledType, "x1-0", sampledTurn(0, func(s *events.TurnSampled) {
		m := events.PromptMessage{Role: "user", Content: strings.Repeat(image.Name(), storage.MaxImages)}
		for n := range storage.MaxImages {
			m.Images = append(m.Images, image)
			m.Images[n].At = n * len(image.Name())
		}
		s.Prompt = []events.PromptMessage{m}
	}))
}
