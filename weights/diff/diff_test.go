package diff

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

func bf16(name string, n int, change ...int) safetensors.Data {
	data := make([]byte, 2*n)
	for _, i := range change {
		binary.LittleEndian.PutUint16(data[2*i:], 0x3f80)
	}
	return safetensors.Data{Name: name, Dtype: safetensors.BF16, Shape: []int64{int64(n)}, Bytes: data}
}

func publish(t *testing.T, s storage.Store, version int64, tensors ...safetensors.Data) *weights.Manifest {
	t.Helper()
	var file bytes.Buffer
	if err := safetensors.Write(&file, tensors, nil); err != nil {
		t.Fatal(err)
	}
	ref, err := weights.Upload(t.Context(), s, "p", bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	published, err := weights.PublishFrom(t.Context(), s, "p", version,
		[]weights.File{{Name: "model.safetensors", Ref: ref}}, nil, weights.AllowEmpty, weights.AllowOtherTensors)
	if err != nil {
		t.Fatal(err)
	}
	return published.Manifest
}

func TestVersions(t *testing.T) {
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const many = piece/2 + 1000 // elements, of more than one piece
	from := publish(t, s, 1, bf16("model.layers.0.w", 10), bf16("model.layers.10.w", many), bf16("head", 4),
		bf16("gone", 1), bf16("grown", 1), bf16("none", 0))
	to := publish(t, s, 2, bf16("model.layers.0.w", 10, 0, 9), bf16("model.layers.10.w", many, 5, many-1),
		bf16("head", 4), bf16("new", 1), bf16("grown", 2), bf16("none", 0))
	last := int64(0)
	r, err := Versions(t.Context(), s, from, to, func(done, total int64) {
		if last = done; done > total {
			t.Errorf("%d of %d bytes", done, total)
		}
	})
	if err != nil || last == 0 {
		t.Fatal(err, last)
	}
	want := "[{gone 1 0 2 removed} {grown 2 0 4 BF16 [1] became BF16 [2]} {head 4 0 8 } {model.layers.0.w 10 2 20 } " +
		fmt.Sprintf("{model.layers.10.w %d 2 %d } {new 1 0 2 added} {none 0 0 0 }]", many, 2*many)
	if got := fmt.Sprint(r.Tensors); got != want {
		t.Errorf("tensors %s\nwant    %s", got, want)
	}
	if got, want := fmt.Sprint(r.Layers), fmt.Sprintf("[{ 4 0 8 } {0 10 2 20 } {10 %d 2 %d }]", many,
		2*many); got != want {
		t.Errorf("layers %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(r.Histogram), fmt.Sprintf(
		"[{0 2 4} {0.0001 1 %d} {0.001 0 0} {0.01 0 0} {0.1 0 0} {1 1 10}]", many); got != want {
		t.Errorf("histogram %s, want %s", got, want)
	}
	d, err := weights.FetchDelta(t.Context(), s, "p", 2)
	if err != nil || r.Delta != d.Size {
		t.Errorf("a delta of %d bytes: %+v, %v", r.Delta, d, err)
	}
	layers, err := PackedLayers(t.Context(), s, d.Ref)
	if err != nil || len(layers) != 3 || layers[0].Bytes != 14 || layers[1].Bytes != 20 || layers[2].Bytes != 2*many ||
		layers[2].Delta == 0 || layers[2].Fraction() > 0.001 {
		t.Errorf("layers %+v, %v", layers, err)
	}
	if r.Sum.Changed != 4 || r.Sum.Elements != many+14 || r.From != 1 || r.To != 2 {
		t.Errorf("%+v", r.Sum)
	}
	if same, err := Versions(t.Context(), s, to, to, func(int64, int64) {}); err != nil || same.Sum.Changed != 0 {
		t.Errorf("a version differs from itself: %+v, %v", same, err)
	}
	if err := s.Delete(t.Context(), from.Files[0].Key); err != nil {
		t.Fatal(err)
	}
	if _, err := Versions(t.Context(), s, from, to, func(int64, int64) {}); err == nil {
		t.Error("a version without its file is compared")
	}
}
