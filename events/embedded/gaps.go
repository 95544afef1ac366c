package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/storage/durable"
)

// gap is where a stream from which nobody deletes misses its first message.
type gap struct {
	messages string // the folder of its files
	first    uint64
}

// gaps looks for streams with a gap: a power cut at an interval may take the end of one of its
// files and leave the next file, which was begun within the last interval. Whoever reads such a
// stream in order would come to an end there.
func (s *Server) gaps(ctx context.Context, settings func(string) (jetstream.StreamConfig,
	bool)) (found []gap, err error) {
	err = s.each(func(js jetstream.JetStream, folder string) error {
		name := filepath.Base(folder)
		if cfg, ours := settings(name); !ours || !cfg.DenyDelete {
			return nil
		}
		stream, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := stream.Info(ctx, jetstream.WithDeletedDetails(true))
		if err == nil && len(info.State.Deleted) > 0 {
			found = append(found, gap{filepath.Join(folder, "msgs"), slices.Min(info.State.Deleted)})
		}
		return err
	})
	return found, err
}

// end takes away what is behind a gap, while no server has the stream's files open.
func (g gap) end() error {
	files, err := filepath.Glob(filepath.Join(g.messages, "*.blk"))
	if err != nil {
		return err
	}
	behind := []string{filepath.Join(g.messages, indexFile)}
	for _, file := range files {
		first, err := firstSequence(file)
		if err != nil {
			return fmt.Errorf("end a stream at its gap in %s: %w", file, err)
		}
		if first > g.first {
			behind = append(behind, file)
		}
	}
	for _, name := range behind {
		if err := os.RemoveAll(name); err != nil {
			return err
		}
	}
	return durable.Sync(g.messages)
}

// firstSequence reads the first message's sequence from a file of messages, 0 of an empty file. It
// is behind a length of 4 bytes; its first two bits say what kind of entry it is.
func firstSequence(file string) (uint64, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var head [12]byte
	switch _, err := io.ReadFull(f, head[:]); {
	case errors.Is(err, io.EOF):
		return 0, nil
	case err != nil:
		return 0, err
	case string(head[:3]) == "cmp":
		return 0, errors.New("its messages are compressed")
	}
	return binary.LittleEndian.Uint64(head[4:]) &^ (3 << 62), nil
}
