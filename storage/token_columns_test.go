package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

func blob(text string) storage.Ref {
	digest := storage.Digest([]byte(text))
	return storage.Ref{Key: storage.BlobKey(digest), SHA256: digest, Size: int64(len(text))}
}

// TestTokenColumnFiles: token columns go through trajectory and batch files. Batch files without
// any have nothing of them.
func TestTokenColumnFiles(t *testing.T) {
	b := taught(4, 5)
	b.Samples[1].Columns = []storage.TokenColumn{
		{Name: "routed_experts", Start: 0, Length: 2, Object: blob("a")},
		{Name: "routed_experts", Start: 3, Length: 1, Row: 7, Object: blob("b")},
		{Name: "top_logprobs", Start: 2, Length: 3, Object: blob("c")},
	}
	file := encodeBatch(t, b)
	back, err := storage.DecodeBatch(file)
	if err != nil || !reflect.DeepEqual(back, b) {
		t.Fatalf("%+v became %+v: %v", b, back, err)
	}
	if names, _ := readSchema(t, file).Metadata().GetValue("token_columns"); names != "routed_experts,top_logprobs" {
		t.Errorf("the metadata name %q", names)
	}
	if bytes.Contains(encodeBatch(t, makeBatch(4, 5)), []byte("token_columns")) {
		t.Error("a batch without token columns has something of them")
	}
	for name, change := range map[string]func(*storage.TokenColumn){
		"behind the tokens":   func(c *storage.TokenColumn) { c.Length = 4 },
		"before them":         func(c *storage.TokenColumn) { c.Start = -1 },
		"of no token":         func(c *storage.TokenColumn) { c.Length = 0 },
		"of row -1":           func(c *storage.TokenColumn) { c.Row = -1 },
		"of a name in a path": func(c *storage.TokenColumn) { c.Name = "../x" },
		"over another":        func(c *storage.TokenColumn) { c.Name, c.Start, c.Length = "routed_experts", 3, 1 },
		"in no blob":          func(c *storage.TokenColumn) { c.Object.Key = "runs/other/log/x" },
		"in other bytes":      func(c *storage.TokenColumn) { c.Object.SHA256 = strings.Repeat("0", 64) },
	} {
		t.Run(name, func(t *testing.T) {
			b := taught(4, 5)
			b.Samples[1].Columns = []storage.TokenColumn{{Name: "routed_experts", Start: 0, Length: 4,
				Object: blob("a")}, {Name: "top_logprobs", Start: 2, Length: 3, Object: blob("c")}}
			change(&b.Samples[1].Columns[1])
			if _, err := storage.EncodeBatch(b); err == nil ||
				!strings.Contains(err.Error(), "token column") && !strings.Contains(err.Error(), "sha256") {
				t.Errorf("written: %v", err)
			}
		})
	}
	for i := 0; i < len(file); i += 17 {
		damaged := bytes.Clone(file)
		damaged[i] ^= 0x10
		if _, err := storage.DecodeBatch(damaged); err != nil && !errors.Is(err, storage.ErrCorrupt) &&
			!errors.Is(err, storage.ErrTooLarge) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
}

// TestTokenColumnsOfSamples: in rollouts of any shape, each token of a sample has the row that was
// stated of it first, and none where nothing was.
func TestTokenColumnsOfSamples(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		trajectory := &storage.Trajectory{Run: "r", Group: "g", Rollout: "g-0", Task: "t", StopReason: "finished"}
		var want [][]string // of each sample, the object and row of each token
		segment := int32(-1)
		for turn := range int32(12) {
			if turn == 0 || r.IntN(4) == 0 {
				segment++
				want = append(want, nil)
			}
			tokens := 1 + r.IntN(5)
			sample := &want[segment]
			before := len(*sample)
			*sample = append(*sample, make([]string, tokens)...)
			m := storage.Message{Index: turn, Turn: turn, Segment: segment, Role: "assistant", PolicyVersion: 1,
				TokenIDs: make([]int32, tokens), Logprobs: make([]float32, tokens), LossMask: make([]bool, tokens)}
			for i := range m.LossMask {
				m.LossMask[i] = true
			}
			known := 0
			for known < before && (*sample)[known] != "" {
				known++
			}
			if from, to := r.IntN(before+1), before+tokens-1; from < to && r.IntN(5) > 0 && from <= known {
				object := blob(fmt.Sprint(seed, turn))
				m.Columns = []storage.TokenColumn{{Name: "routed_experts", Start: int32(from), Length: int32(to - from),
					Row: 3, Object: object}}
				for i := from; i < to; i++ {
					if (*sample)[i] == "" {
						(*sample)[i] = fmt.Sprint(object.SHA256, 3+i-from)
					}
				}
			}
			trajectory.Messages = append(trajectory.Messages, m)
		}
		file, err := storage.EncodeTrajectory(trajectory)
		if err != nil {
			t.Fatal(err)
		}
		back, err := storage.DecodeTrajectory(file)
		if err != nil {
			t.Fatal(err)
		}
		samples := back.Samples()
		if len(samples) != len(want) {
			t.Fatalf("seed %d: %d samples, want %d", seed, len(samples), len(want))
		}
		for i, s := range samples {
			got := make([]string, len(s.Tokens))
			for _, c := range s.Columns {
				for k := range c.Length {
					if got[c.Start+k] != "" {
						t.Errorf("seed %d: token %d of sample %d has two rows", seed, c.Start+k, i)
					}
					got[c.Start+k] = fmt.Sprint(c.Object.SHA256, int32(c.Row)+k)
				}
			}
			if !reflect.DeepEqual(got, want[i]) {
				t.Fatalf("seed %d: sample %d has rows\n%v, want\n%v", seed, i, got, want[i])
			}
		}
	}
}
