package storage_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

func makeImage(seed string) storage.Image {
	digest := storage.Digest([]byte(seed))
	return storage.Image{Ref: storage.Ref{Key: storage.BlobKey(digest), SHA256: digest, Size: 9},
		MediaType: "image/png", Width: 3, Height: 2}
}

func showing(m *storage.Message, images ...storage.Image) {
	m.Content, m.Images = "", nil
	for _, i := range images {
		m.Content += "> "
		i.At = len(m.Content)
		m.Content, m.Images = m.Content+i.Name(), append(m.Images, i)
	}
}

// TestImagesInFiles: files keep images, and those without any are as they were. A row that begins a
// sample with all of its prompt has all of its images.
func TestImagesInFiles(t *testing.T) {
	a, b := makeImage("a"), makeImage("b")
	tr := makeTrajectory(2, 4)
	showing(&tr.Messages[1], a)
	showing(&tr.Messages[3], b)
	again := storage.Message{Index: int32(len(tr.Messages)), Turn: 2, Segment: 1, Role: "user", PolicyVersion: -1}
	showing(&again, b, a)
	behind := storage.Message{Index: again.Index + 1, Turn: 2, Segment: 1, Role: "prompt", TokenIDs: []int32{1},
		Logprobs: []float32{0}, LossMask: []bool{false}, PolicyVersion: -1, Images: []storage.Image{a, b, b, a}}
	tr.Messages = append(tr.Messages, again, behind)
	got, err := storage.DecodeTrajectory(encodeTrajectory(t, tr))
	if err != nil || !reflect.DeepEqual(got, tr) {
		t.Errorf("a trajectory came back as %+v, %v", got, err)
	}
	var samples []string
	for _, s := range tr.Samples() {
		text := ""
		for _, i := range s.Images {
			text += i.SHA256[:4] + " "
		}
		samples = append(samples, text)
	}
	x, y := a.SHA256[:4]+" ", b.SHA256[:4]+" "
	if want := []string{x + y, x + y + y + x}; !reflect.DeepEqual(samples, want) {
		t.Errorf("samples with %q, want %q", samples, want)
	}
	batch := makeBatch(2, 6)
	batch.Samples[1].Images = []storage.Image{a, b}
	back, err := storage.DecodeBatch(encodeBatch(t, batch))
	if err != nil || !reflect.DeepEqual(back.Samples[1].Images, batch.Samples[1].Images) ||
		back.Samples[0].Images != nil {
		t.Errorf("a batch came back as %+v, %v", back, err)
	}
}

// TestWrongImages: no file has images that are none, or too many of them.
func TestWrongImages(t *testing.T) {
	for name, change := range map[string]func(*storage.Trajectory){
		"no blob":       func(tr *storage.Trajectory) { tr.Messages[1].Images[0].Key = "runs/r/log/1.arrow" },
		"another kind":  func(tr *storage.Trajectory) { tr.Messages[1].Images[0].MediaType = "image/svg+xml" },
		"no width":      func(tr *storage.Trajectory) { tr.Messages[1].Images[0].Width = 0 },
		"too high":      func(tr *storage.Trajectory) { tr.Messages[1].Images[0].Height = storage.MaxImageSide + 1 },
		"no bytes":      func(tr *storage.Trajectory) { tr.Messages[1].Images[0].Size = 0 },
		"not named":     func(tr *storage.Trajectory) { tr.Messages[1].Content = "> " },
		"before itself": func(tr *storage.Trajectory) { tr.Messages[1].Images[0].At = -1 },
		"too many": func(tr *storage.Trajectory) {
			var all []storage.Image
			for range storage.MaxImages/2 + 1 {
				all = append(all, makeImage("a"))
			}
			showing(&tr.Messages[1], all...)
			showing(&tr.Messages[3], all...)
		},
	} {
		tr := makeTrajectory(2, 4)
		showing(&tr.Messages[1], makeImage("a"))
		if _, err := storage.EncodeTrajectory(tr); err != nil {
			t.Fatal(err)
		}
		change(tr)
		if _, err := storage.EncodeTrajectory(tr); err == nil || errors.Is(err, storage.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if long := strings.Repeat("x", 20); storage.CheckImages([]storage.Image{makeImage("a")}, long) == nil {
		t.Error("a text without its image is taken")
	}
}
