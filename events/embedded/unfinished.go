package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/minio/highwayhash"
)

// Files that describe a stream or a consumer: its configuration, and the hash of that.
const (
	metaFile = "meta.inf"
	sumFile  = "meta.sum"
)

// finishMeta completes what a process that was killed left half written. The server writes the
// configuration of a stream or of a consumer, whole, and after that its hash; what has no matching
// hash it leaves out when it starts, and it never writes the hash later. So a stream that was first
// made in that moment would serve, and be gone after each restart.
//
// A configuration that is older than its hash was not written last: it is damaged, and
// stays the server's matter.
func finishMeta(dir string) error {
	streams := filepath.Join(dir, "jetstream", "*", "streams", "*")
	for _, pattern := range []string{streams, filepath.Join(streams, "obs", "*")} {
		found, err := filepath.Glob(filepath.Join(pattern, metaFile))
		if err != nil {
			return err
		}
		for _, meta := range found {
			if err := finishSum(meta); err != nil {
				return fmt.Errorf("complete %s: %w", filepath.Dir(meta), err)
			}
		}
	}
	return nil
}

func finishSum(meta string) error {
	sumName := filepath.Join(filepath.Dir(meta), sumFile)
	written, err := os.Stat(meta)
	if err != nil {
		return err
	}
	var hashed time.Time // never
	switch sum, err := os.Stat(sumName); {
	case err == nil:
		hashed = sum.ModTime()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if !written.ModTime().After(hashed) {
		return nil
	}
	config, err := os.ReadFile(meta)
	if err != nil {
		return err
	}
	key := sha256.Sum256([]byte(metaName(meta)))
	hash, err := highwayhash.New64(key[:])
	if err != nil {
		return err
	}
	hash.Write(config)
	temp := sumName + ".tmp"
	if err := os.WriteFile(temp, []byte(hex.EncodeToString(hash.Sum(nil))), written.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(temp, sumName)
}

// metaName is what the server makes the key of the hash of: STREAM, or STREAM/CONSUMER.
func metaName(meta string) string {
	of := filepath.Dir(meta)
	if parent := filepath.Dir(of); filepath.Base(parent) == "obs" {
		return filepath.Base(filepath.Dir(parent)) + "/" + filepath.Base(of)
	}
	return filepath.Base(of)
}
