package trainer

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// file is a file of the policy in which so many weights are 1.
func file(t *testing.T, ones int) []byte {
	t.Helper()
	values := make([]float32, policy.Dimension)
	for i := range ones {
		values[i*100] = 1
	}
	var b bytes.Buffer
	if err := safetensors.Write(&b, []safetensors.Data{safetensors.NewF32("policy.weights", []int64{policy.Dimension},
		values)}, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// closed is a store that refuses to say what is at a key.
type closed struct {
	storage.Store
	key string
}

func (c *closed) Load(ctx context.Context, key string) ([]byte, string, error) {
	if key == c.key {
		return nil, "", errors.New("access denied")
	}
	return c.Store.Load(ctx, key)
}

// TestUpload: a version goes up as a delta of a few per cent where its own version before is the
// published one, and whole wherever the publisher could not make it of that: at first, when the one
// before was not published, and when somebody else published another one. A store that says nothing
// of the pointer costs the delta alone.
func TestUpload(t *testing.T) {
	closed := &closed{Store: natstest.Log(t).Store()}
	log, err := eventlog.New(natstest.Log(t).Conn(), closed)
	if err != nil {
		t.Fatal(err)
	}
	tr := &trainer{Config: Config{Log: log, Run: "r", Policy: "p", Logger: slog.New(slog.DiscardHandler)}}
	upload := func(version int64, ones int, byDelta bool) (events.WeightsSubmitted, []byte) {
		t.Helper()
		data := file(t, ones)
		tr.checkpoint.Version = version
		wish, err := tr.upload(t.Context(), data)
		if err != nil {
			t.Fatal(err)
		}
		_, err = log.Store().Stat(t.Context(), wish.Files[0].Blob.Key)
		if (wish.Delta != nil) != byDelta || (err != nil) != byDelta {
			t.Fatalf("version %d: delta %+v, its file: %v", version, wish.Delta, err)
		}
		if wish.Delta != nil && (wish.Delta.Base != version-1 || wish.Delta.Blob.Size > int64(len(data))/20) {
			t.Errorf("version %d: delta %+v", version, wish.Delta)
		}
		return wish, data
	}
	publish := func(wish events.WeightsSubmitted, data []byte) {
		t.Helper()
		files := []weights.File{{Name: wish.Files[0].Name, Ref: wish.Files[0].Blob}}
		if wish.Delta != nil {
			if err := weights.Rebuild(t.Context(), log.Store(), "p", files,
				weights.MadeDelta{Base: wish.Delta.Base, Ref: wish.Delta.Blob}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := weights.PublishFrom(t.Context(), log.Store(), "p", wish.Version, files, nil); err != nil {
			t.Fatal(err)
		}
		if got, err := storage.GetBlob(t.Context(), log.Store(), wish.Files[0].Blob); err != nil ||
			!bytes.Equal(got, data) {
			t.Errorf("version %d has other bytes: %v", wish.Version, err)
		}
	}
	closed.key = weights.PointerKey("p") // as S3 does where nothing is there, and the trainer may not list
	first, data := upload(1, 1, false)
	closed.key = ""
	publish(first, data)
	publish(upload(2, 100, true))
	upload(3, 200, true) // and it is rejected, for one
	publish(upload(4, 300, false))
	publish(upload(5, 400, true))
	tr.last = file(t, 7) // somebody else has published version 5
	publish(upload(6, 500, false))
}
