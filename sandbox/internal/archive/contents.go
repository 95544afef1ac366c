package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
)

// Contents describes every entry of an archive by its name: a file's mode, size and SHA-256, a
// folder's mode, a link's target, or that it is deleted. Two archives hold the same where
// their descriptions are equal.
func Contents(data Source) (map[string]string, error) {
	found := map[string]string{}
	err := data.read(func(e entry, content io.Reader) error {
		switch {
		case e.deleted:
			found[e.name] = "deleted"
		case e.mode&fs.ModeSymlink != 0:
			found[e.name] = "link to " + e.link
		case e.mode.IsDir():
			found[e.name] = e.mode.String()
		default:
			sum := sha256.New()
			if _, err := io.Copy(sum, content); err != nil {
				return fmt.Errorf("%s: %w: %w", e.name, ErrInvalid, err)
			}
			found[e.name] = fmt.Sprintf("%v %d bytes sha256 %s", e.mode, e.size, hex.EncodeToString(sum.Sum(nil)))
		}
		return nil
	})
	return found, err
}
