package storage_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// wantRefused checks that bytes are refused by one of the two errors that a reader
// of foreign files expects.
func wantRefused(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrTooLarge) {
		t.Errorf("%s: error %v, want ErrCorrupt or ErrTooLarge", what, err)
	}
}

func TestTruncatedFilesAreRefused(t *testing.T) {
	trajectory, batch := encodeTrajectory(t, makeTrajectory(3, 20)), encodeBatch(t, makeBatch(3, 40))
	for n := 0; n < len(trajectory); n += 1 + n/100 {
		_, err := storage.DecodeTrajectory(trajectory[:n:n])
		wantRefused(t, "the beginning of a trajectory", err)
		_, err = storage.DecodeTrajectory(trajectory[n+1:])
		wantRefused(t, "the end of a trajectory", err)
	}
	for n := 0; n < len(batch); n += 1 + n/100 {
		_, err := storage.DecodeBatch(batch[:n:n])
		wantRefused(t, "the beginning of a batch", err)
	}
}

// TestFlippedBits flips bits one at a time: either the file is refused, or the bit was in padding
// and the content is the same.
func TestFlippedBits(t *testing.T) {
	const stride = 61 // coprime to 8, so that every bit of a byte has its turn
	wantTrajectory, wantBatch := makeTrajectory(2, 6), makeBatch(2, 8)
	trajectory, batch := encodeTrajectory(t, wantTrajectory), encodeBatch(t, wantBatch)
	refused := 0
	for bit := 0; bit < 8*len(trajectory); bit += stride {
		trajectory[bit/8] ^= 1 << (bit % 8)
		got, err := storage.DecodeTrajectory(trajectory)
		trajectory[bit/8] ^= 1 << (bit % 8)
		switch {
		case err != nil:
			refused++
			wantRefused(t, "a flipped bit", err)
		case !reflect.DeepEqual(got, wantTrajectory):
			t.Errorf("bit %d of byte %d of %d changes the trajectory unnoticed", bit%8, bit/8, len(trajectory))
		}
	}
	if refused < len(trajectory)*8/stride/3 {
		t.Errorf("only %d of %d flipped bits were noticed", refused, len(trajectory)*8/stride)
	}
	for bit := 0; bit < 8*len(batch); bit += stride {
		batch[bit/8] ^= 1 << (bit % 8)
		got, err := storage.DecodeBatch(batch)
		batch[bit/8] ^= 1 << (bit % 8)
		if err == nil && !reflect.DeepEqual(got, wantBatch) {
			t.Errorf("bit %d of byte %d of %d changes the batch unnoticed", bit%8, bit/8, len(batch))
		}
	}
}

func FuzzDecodeTrajectory(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("ARROW1\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00ARROW1"))
	f.Add(encodeTrajectory(f, makeTrajectory(0, 0)))
	f.Add(encodeTrajectory(f, makeTrajectory(2, 3)))
	f.Fuzz(func(t *testing.T, file []byte) {
		trajectory, err := storage.DecodeTrajectory(file)
		if err != nil {
			wantRefused(t, "fuzzed file", err)
			return
		}
		again, err := storage.EncodeTrajectory(trajectory)
		if err != nil {
			t.Fatalf("what was decoded does not encode: %v", err)
		}
		if got, err := storage.DecodeTrajectory(again); err != nil || !reflect.DeepEqual(got, trajectory) {
			t.Fatalf("round trip of what was decoded: %v", err)
		}
	})
}

func FuzzDecodeBatch(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeBatch(f, makeBatch(0, 0)))
	f.Add(encodeBatch(f, makeBatch(2, 5)))
	f.Add(encodeBatch(f, &storage.Batch{Run: "r", Feed: "f", Ranks: 3, Rank: 2, MicroBatches: 1,
		Whole: storage.Counts{Samples: 9, SampledTokens: 9, Rollouts: 9}}))
	f.Fuzz(func(t *testing.T, file []byte) {
		batch, err := storage.DecodeBatch(file)
		if err != nil {
			wantRefused(t, "fuzzed file", err)
			return
		}
		again, err := storage.EncodeBatch(batch)
		if err != nil {
			t.Fatalf("what was decoded does not encode: %v", err)
		}
		if got, err := storage.DecodeBatch(again); err != nil || !reflect.DeepEqual(got, batch) {
			t.Fatalf("round trip of what was decoded: %v", err)
		}
	})
}
