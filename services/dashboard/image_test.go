package dashboard

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference/images"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// TestImages: a rollout's page shows the images of its messages, which come from here as what
// they are and can do nothing. What a message only states to be an image is not served, nor is
// another object of the store.
func TestImages(t *testing.T) {
	d := newDesk(t)
	d.openRun()
	data, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM8wQAFTDAGAwAPFADMILIQogAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	image, err := images.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	servicetest.Blob(t, d.log.Store(), data)
	page := servicetest.Blob(t, d.log.Store(), []byte("<!doctype html><script>alert(1)</script>"))
	lie, lost := image, image
	lie.Ref = page
	lost.SHA256 = strings.Repeat("0", 64)
	lost.Key = storage.BlobKey(lost.SHA256)
	const rollout = "g000001-0"
	servicetest.StartRollout(t, d.log, "live", rollout, "fix")
	tr := servicetest.Trajectory("live", rollout, "fix")
	m := &tr.Messages[0]
	m.Content = ""
	for _, i := range []storage.Image{image, lie, lost} {
		i.At = len(m.Content)
		m.Content, m.Images = m.Content+i.Name(), append(m.Images, i)
	}
	d.state(events.RolloutFinishedType, rollout, "0", servicetest.Finished(d, d.log.Store(), "live", rollout, tr))
	base := "/runs/live/rollouts/" + rollout
	d.has(base, `<img loading="lazy" src="`+base+"/images/"+image.SHA256+`" alt="`+image.Name()+
		`" width="3" height="2">`)
	w := d.ask(base + "/images/" + image.SHA256)
	h := w.Header()
	if w.Code != http.StatusOK || w.Body.String() != string(data) || h.Get("Content-Type") != "image/png" ||
		h.Get("X-Content-Type-Options") != "nosniff" ||
		h.Get("Content-Security-Policy") != "default-src 'none'; sandbox" {
		t.Errorf("%d, %v", w.Code, h)
	}
	for _, digest := range []string{lie.SHA256, lost.SHA256, storage.Digest([]byte("else")), "..", "x"} {
		if w := d.ask(base + "/images/" + digest); w.Code == http.StatusOK ||
			strings.Contains(w.Body.String(), "alert") {
			t.Errorf("%s is served: %d", digest, w.Code)
		}
	}
}
