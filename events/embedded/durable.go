package embedded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rondo-rl/rondo/storage/durable"
)

// The server syncs messages, at once or at its interval, and beside "always" nothing else: neither
// a stream's settings, nor the names of its folders, without which its messages are not found after
// a power cut. This file does.

// Persist returns when all of a stream is on the disk that was acknowledged before: its settings,
// its messages, and the folders that lead to them. Of a stream that was deleted it is the deletion.
func (s *Server) Persist(stream string) error {
	homes, err := filepath.Glob(filepath.Join(s.options.StoreDir, "jetstream", "*", "streams"))
	if err != nil {
		return err
	}
	for _, home := range homes {
		if err := durable.SyncTree(filepath.Join(home, stream)); err != nil {
			return err
		}
		for folder := home; folder != s.options.StoreDir; folder = filepath.Dir(folder) {
			if err := durable.Sync(folder); err != nil {
				return err
			}
		}
	}
	return durable.Sync(s.options.StoreDir)
}

// uncleanFile is in the directory while a server runs, and says at which durability. One that
// starts and finds it follows a crash.
const (
	uncleanFile = "unclean"
	syncsAlways = "always"
	syncsLater  = "interval"
)

// indexFile counts a stream's messages, beside them.
const indexFile = "index.db"

// begin marks the directory, after it has brought it in order where the last server crashed. It
// reports whether that one may have acknowledged what is lost.
func begin(dir string, always bool) (lost bool, err error) {
	mark := filepath.Join(dir, uncleanFile)
	before, err := os.ReadFile(mark)
	if err == nil {
		lost = string(before) != syncsAlways
		err = afterCrash(dir, !lost)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return lost, err
	}
	now := syncsLater
	if always {
		now = syncsAlways
	}
	if err := os.WriteFile(mark+".tmp", []byte(now), 0o640); err != nil {
		return lost, err
	}
	return lost, errors.Join(durable.Sync(mark+".tmp"), os.Rename(mark+".tmp", mark), durable.Sync(dir))
}

// afterCrash brings a directory in order:
//   - It syncs what the server that crashed had not, as the new one does not know of that.
//   - It removes the indexes of streams, which the server makes again from the messages. An
//     index may be on the disk while the last messages that it counts are not, and the server
//     would leave a gap for them.
//   - Where messages were synced later than they were acknowledged, it removes what consumers had
//     acknowledged: that may be on the disk while what was made of it, on this stream or on
//     another, is not. All is delivered again, and handlers look at the log.
func afterCrash(dir string, always bool) error {
	if err := durable.SyncTree(dir); err != nil {
		return err
	}
	streams := filepath.Join(dir, "jetstream", "*", "streams", "*")
	patterns := []string{filepath.Join(streams, "msgs", indexFile)}
	if !always {
		patterns = append(patterns, filepath.Join(streams, "obs", "*", "o.dat"))
	}
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, name := range found {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// end brings to the disk what a server that has shut down did not, and takes the mark away.
func end(dir string) error {
	if err := durable.SyncTree(dir); err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, uncleanFile))
}
