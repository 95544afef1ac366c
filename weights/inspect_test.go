package weights_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// vector is a tensor of one dimension.
func vector(name string, dtype safetensors.Dtype, bytesOfElement int, data ...byte) safetensors.Data {
	return safetensors.Data{Name: name, Dtype: dtype, Shape: []int64{int64(len(data) / bytesOfElement)}, Bytes: data}
}

func f32(name string, values ...float32) safetensors.Data {
	return safetensors.NewF32(name, []int64{int64(len(values))}, values)
}

func tensorFile(t *testing.T, name string, tensors ...safetensors.Data) weights.Content {
	t.Helper()
	var file bytes.Buffer
	if err := safetensors.Write(&file, tensors, nil); err != nil {
		t.Fatal(err)
	}
	return weights.Content{Name: name, Data: file.Bytes()}
}

// offer publishes files as a trainer that uploads them does.
func offer(t *testing.T, s storage.Store, version int64, files []weights.Content, allow ...string) error {
	t.Helper()
	uploaded := make([]weights.File, len(files))
	for i, file := range files {
		ref, err := weights.Upload(t.Context(), s, "repair", bytes.NewReader(file.Data), int64(len(file.Data)))
		if err != nil {
			t.Fatal(err)
		}
		uploaded[i] = weights.File{Name: file.Name, Ref: ref}
	}
	_, err := weights.PublishFrom(t.Context(), s, "repair", version, uploaded, nil, allow...)
	return err
}

const (
	firstShard  = "model-00001-of-00002.safetensors"
	secondShard = "model-00002-of-00002.safetensors"
)

// TestUnfitWeights: what is no whole model of numbers is not published, and the error names the
// tensor or the file. With the exception that the error names, where there is one, it is published.
func TestUnfitWeights(t *testing.T) {
	a, b := tensorFile(t, firstShard, f32("a", 1)), tensorFile(t, secondShard, f32("b", 2))
	index := func(text string) weights.Content {
		return weights.Content{Name: "model.safetensors.index.json", Data: []byte(text)}
	}
	for name, c := range map[string]struct {
		files []weights.Content
		want  string
		allow string
	}{
		"an index names a missing shard": {[]weights.Content{a, b,
			index(`{"weight_map":{"a":"` + firstShard + `","b":"` + secondShard +
				`","c":"model-00003-of-00003.safetensors"}}`)},
			`tensor "c" is in no file`, ""},
		"a tensor is not in its shard": {[]weights.Content{a, b,
			index(`{"weight_map":{"a":"` + secondShard + `","b":"` + secondShard + `"}}`)},
			`tensor "a" is in "` + firstShard + `", and not in`, ""},
		"an index leaves a tensor out": {[]weights.Content{tensorFile(t, "m.safetensors", f32("a", 1), f32("b", 1)),
			index(`{"weight_map":{"a":"m.safetensors"}}`)},
			"names 1 of the 2 tensors", ""},
		"an index leaves a file out": {[]weights.Content{a, b, index(`{"weight_map":{"a":"` + firstShard + `"}}`)},
			`no index names the 1 tensors of "` + secondShard, ""},
		"an index of another name lies": {[]weights.Content{a, b,
			{Name: "adapter.safetensors.index.json", Data: []byte(`{"weight_map":{"c":"x"}}`)}},
			`tensor "c" is in no file`, ""},
		"an index names a tensor twice": {[]weights.Content{a, b,
			index(`{"weight_map":{"a":"` + secondShard + `","a":"` + firstShard + `","b":"` + secondShard + `"}}`)},
			"twice", ""},
		"a variant's index lies": {[]weights.Content{a, b,
			{Name: "model.safetensors.index.fp16.json", Data: []byte(`{"weight_map":{"c":"x"}}`)}},
			`tensor "c" is in no file`, ""},
		"an extension in capitals": {[]weights.Content{a, b, {Name: "adapter.SAFETENSORS", Data: []byte("x")}},
			"adapter.SAFETENSORS", ""},
		"a number behind the extension": {[]weights.Content{a, b,
			{Name: "more.safetensors-00001-of-00002", Data: []byte("x")}}, "more.safetensors-00001", ""},
		"an index without a map": {[]weights.Content{a, b, index(`{}`)}, "no weight_map", ""},
		"a name in two files": {[]weights.Content{a, tensorFile(t, secondShard, f32("a", 2))},
			`tensor "a" is in`, ""},
		"a shard is missing": {[]weights.Content{a},
			"1 of the 00002 files model-…-of-00002.safetensors are there", ""},
		"the first shard is missing": {[]weights.Content{b}, "1 of the 00002 files", ""},
		"a variant's shard is missing": {[]weights.Content{tensorFile(t,
			"model-00001-of-00002.fp16.safetensors", f32("a", 1))},
			"1 of the 00002 files model-…-of-00002.fp16.safetensors", ""},
		"other signs between": {[]weights.Content{tensorFile(t, "model_1_of_2.safetensors", f32("a", 1))},
			"1 of the 2 files", ""},
		"a rank is missing": {[]weights.Content{tensorFile(t,
			"model_world_size_2_rank_1.safetensors", f32("a", 1))}, "1 of the 2 files", ""},
		"a shard of too many": {[]weights.Content{a, b,
			tensorFile(t, "model-00003-of-00002.safetensors", f32("c", 1))}, "3 of the 00002 files", ""},
		"a shard twice": {[]weights.Content{a,
			tensorFile(t, "model-1-of-00002.safetensors", f32("b", 1))}, "2 of the 00002 files", ""},
		"an index maps to no text": {[]weights.Content{a, b,
			index(`{"weight_map":{"a":1,"b":"` + secondShard + `"}}`)}, "is not a text", ""},
		"an index maps to a path": {[]weights.Content{a, b,
			index(`{"weight_map":{"a":"./` + firstShard + `","b":"` + secondShard + `"}}`)}, `"a" is in`, ""},
		"an index maps to null": {[]weights.Content{a, b, index(`{"weight_map":null}`)}, "index.json", ""},
		"an index that goes on": {[]weights.Content{a, b,
			index(`{"weight_map":{"a":"` + firstShard + `","b":"` + secondShard + `"}}{}`)}, "something follows", ""},
		"an index of nothing": {[]weights.Content{a, b, index(``)}, "index.json", ""},
		"NaN in the second file": {[]weights.Content{a,
			tensorFile(t, secondShard, f32("b", float32(math.NaN())))}, `file ` + secondShard + `: tensor "b"`,
			weights.AllowNotFinite},
		"NaN in an adapter": {[]weights.Content{tensorFile(t, "model.safetensors", f32("a", 1)),
			tensorFile(t, "adapter_model.safetensors", f32("l", 1, float32(math.NaN())))}, `"l": element 1 is NaN`,
			weights.AllowNotFinite},
		"a complex one": {[]weights.Content{tensorFile(t,
			"model.safetensors", vector("a", "C64", 8, 0, 0, 0, 0, 0, 0, 0x80, 0x7f))}, `"a": element`,
			weights.AllowNotFinite},
		"fp8 without a sign of 0": {[]weights.Content{tensorFile(t,
			"model.safetensors", vector("a", "F8_E4M3FNUZ", 1, 0x7f, 0x80))}, `"a": element 1 is NaN`,
			weights.AllowNotFinite},
		"a negative NaN behind a word": {[]weights.Content{tensorFile(t,
			"model.safetensors", vector("a", safetensors.BF16, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0xc1, 0xff))},
			`"a": element 4 is NaN`, weights.AllowNotFinite},
		"shards of two sets": {[]weights.Content{a,
			tensorFile(t, "model-00002-of-00003.safetensors", f32("b", 1))}, "are there", ""},
		"no tensors": {[]weights.Content{tensorFile(t, "model.safetensors")}, "no tensors", ""},
		"a tensor that is not gathered": {[]weights.Content{tensorFile(t, "model.safetensors", f32("a", 1),
			f32("lm_head.weight"))}, `"lm_head.weight"`, weights.AllowEmpty},
		"NaN": {[]weights.Content{tensorFile(t, "model.safetensors", f32("a", 1),
			f32("b", 1, 2, float32(math.NaN())))}, `tensor "b": element 2 is NaN`, weights.AllowNotFinite},
		"infinite": {[]weights.Content{tensorFile(t,
			"model.safetensors", f32("a", float32(math.Inf(-1))))}, `tensor "a": element 0 is infinite`,
			weights.AllowNotFinite},
		"bf16": {[]weights.Content{tensorFile(t,
			"model.safetensors", vector("a", safetensors.BF16, 2, 0, 0, 0xc0, 0x7f))}, `"a": element 1 is NaN`,
			weights.AllowNotFinite},
		"f16": {[]weights.Content{tensorFile(t,
			"model.safetensors", vector("a", "F16", 2, 0x00, 0xfc))}, `"a": element 0 is infinite`,
			weights.AllowNotFinite},
		"f64": {[]weights.Content{tensorFile(t, "model.safetensors",
			vector("a", "F64", 8, binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.NaN()))...))},
			`"a": element 0 is NaN`, weights.AllowNotFinite},
		"fp8": {[]weights.Content{tensorFile(t, "model.safetensors", vector("a", "F8_E4M3", 1, 0x7e, 0xff))},
			`"a": element 1 is NaN`, weights.AllowNotFinite},
		"fp8 e5m2": {[]weights.Content{tensorFile(t, "model.safetensors", vector("a", "F8_E5M2", 1, 0x7b, 0xfc))},
			`"a": element 1 is infinite`, weights.AllowNotFinite},
		"a scale": {[]weights.Content{tensorFile(t, "model.safetensors", vector("a", "F8_E8M0", 1, 0x7f, 0xff))},
			`"a": element 1 is NaN`, weights.AllowNotFinite},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			err := offer(t, s, 1, c.files)
			if !errors.Is(err, weights.ErrUnfit) || !strings.Contains(err.Error(), c.want) ||
				c.allow != "" && !strings.Contains(err.Error(), c.allow) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if _, _, err := weights.Current(t.Context(), s, "repair"); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("the pointer is there: %v", err)
			}
			if c.allow != "" {
				if err := offer(t, s, 1, c.files, c.allow); err != nil {
					t.Errorf("allowed: %v", err)
				}
			}
			if _, err := weights.Publish(t.Context(), s, "other", 1, c.files...); !errors.Is(err, weights.ErrUnfit) {
				t.Errorf("from memory: %v", err)
			}
		})
	}
}

// TestWholeWeights: what is whole is published, whatever its files are called and
// with or without an index.
func TestWholeWeights(t *testing.T) {
	index := []byte(`{"metadata":{"total_size":8},"weight_map":{"a":"` + firstShard + `","b":"` + secondShard + `"}}`)
	a, b := tensorFile(t, firstShard, f32("a", 1)), tensorFile(t, secondShard, f32("b", math.MaxFloat32))
	for name, files := range map[string][]weights.Content{
		"without an index": {a, b},
		"with an index":    {a, b, {Name: "model.safetensors.index.json", Data: index}},
		"counted from 0": {tensorFile(t, "m-00000-of-00002.safetensors", f32("a", 1)),
			tensorFile(t, "m-00001-of-00002.safetensors", f32("b", 1))},
		"another format's": {tensorFile(t, "a.safetensors", vector("a", "I32", 4, 0xff, 0xff, 0xff, 0x7f)),
			{Name: "pytorch_model.bin.index.json", Data: []byte("{}")}},
		"of ranks": {tensorFile(t, "model_world_size_2_rank_0.safetensors", f32("a", 1)),
			tensorFile(t, "model_world_size_2_rank_1.safetensors", f32("b", 1))},
		"a variant's":      {tensorFile(t, "m-00001-of-00001.bf16.safetensors", f32("a", 1))},
		"no number of all": {tensorFile(t, "best-of-3.safetensors", f32("a", 1))},
		"an empty shard":   {a, tensorFile(t, secondShard)},
	} {
		if err := offer(t, store(t), 1, files); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOtherTensors: a version has the tensors of the version before, unless
// its trainer says otherwise.
func TestOtherTensors(t *testing.T) {
	model := func(tensors ...safetensors.Data) []weights.Content {
		return []weights.Content{tensorFile(t, "model.safetensors", tensors...)}
	}
	for name, c := range map[string]struct {
		next []weights.Content
		want string
	}{
		"type": {model(f32("a", 1, 2), vector("b", safetensors.BF16, 2, 0, 0)), `tensor "b" is BF16, and was F32`},
		"shape": {model(safetensors.NewF32("a", []int64{1, 2}, []float32{1, 2}), f32("b", 3)),
			`tensor "a" has the shape [1 2], and had [2]`},
		"missing": {model(f32("a", 1, 2)), `tensor "b" is missing`},
		"new":     {model(f32("a", 1, 2), f32("b", 3), f32("c", 3)), `tensor "c" is new`},
		"all": {model(f32("1", 1), f32("2", 1), f32("3", 1), f32("4", 1), f32("5", 1), f32("6", 1)),
			"(and 3 more) against version 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			if err := offer(t, s, 1, model(f32("a", 1, 2), f32("b", 3))); err != nil {
				t.Fatal(err)
			}
			if err := offer(t, s, 2, c.next); !errors.Is(err, weights.ErrUnfit) ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			wantCurrent(t, s, 1)
			if err := offer(t, s, 2, c.next, weights.AllowOtherTensors); err != nil {
				t.Error(err)
			}
			wantCurrent(t, s, 2)
			if err := offer(t, s, 2, c.next); err != nil { // it was published, and its publisher died
				t.Error(err)
			}
		})
	}
}

// TestNothingToCompareWith: a version before whose files are lost holds up no version behind it.
func TestNothingToCompareWith(t *testing.T) {
	s := store(t)
	first := publish(t, s, 1, 1)
	if err := s.Delete(t.Context(), first.Manifest.Files[0].Key); err != nil {
		t.Fatal(err)
	}
	if err := offer(t, s, 2, []weights.Content{tensorFile(t, "model.safetensors", f32("other", 1))}); err != nil {
		t.Error(err)
	}
}

// TestManifestsByMeaning: a publisher whose manifests have other bytes, as one of another
// release writes them, published the version and died before it moved the pointer. The same
// files finish it; others are refused.
func TestManifestsByMeaning(t *testing.T) {
	for name, change := range map[string]func(string) string{
		"spaces": func(m string) string { return strings.ReplaceAll(m, "  ", "") },
		"another order": func(m string) string {
			return strings.Replace(strings.Replace(m, `"format": "full",`, "", 1), `"base"`,
				`"format": "full", "base"`, 1)
		},
		"numbers": func(m string) string { return strings.Replace(m, `"base": -1`, `"base":-1`, 1) },
		"an end":  func(m string) string { return m + "\n\n" },
		"null":    func(m string) string { return strings.Replace(m, `"format"`, `"signed": null, "format"`, 1) },
		"fields":  func(m string) string { return strings.Replace(m, `"format"`, `"made_by": "another", "format"`, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			ours := publish(t, s, 3, 1)
			manifest, err := s.Get(t.Context(), ours.Ref.Key)
			if err != nil {
				t.Fatal(err)
			}
			theirs := change(string(manifest))
			for _, err := range []error{s.Put(t.Context(), ours.Ref.Key, []byte(theirs)),
				s.Delete(t.Context(), weights.PointerKey("repair"))} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := weights.Publish(t.Context(), s, "repair", 3,
				files(t, 2)...); !errors.Is(err, storage.ErrExists) {
				t.Errorf("other files: %v", err)
			}
			again := publish(t, s, 3, 1)
			if again.Ref.SHA256 != storage.Digest([]byte(theirs)) {
				t.Errorf("the reference is not that of what is there: %+v", again.Ref)
			}
			version, ref, err := weights.Current(t.Context(), s, "repair")
			if err != nil || version != 3 || ref != again.Ref {
				t.Errorf("the pointer names %d, %+v, %v", version, ref, err)
			}
			if _, err := storage.GetBlob(t.Context(), s, ref); err != nil {
				t.Error(err)
			}
		})
	}
}
