package embedder

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/index/embed"
)

// dimensionMemory is a file that remembers how many dimensions a server's model has,
// so that not every command has to ask. It may be lost: errors are none of whoever
// embeds. "" remembers nothing.
type dimensionMemory string

func newDimensionMemory(folder string, r *remote) dimensionMemory {
	if folder == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(r.endpoint + "\x00" + r.model + "\x00" + strconv.Itoa(r.asked)))
	return dimensionMemory(filepath.Join(folder, hex.EncodeToString(sum[:16])))
}

// load gives 0 if nothing is remembered.
func (m dimensionMemory) load() int {
	text, err := os.ReadFile(string(m))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 1 || n > embed.MaxDimensions {
		return 0
	}
	return n
}

func (m dimensionMemory) keep(dimensions int) {
	if m == "" || os.MkdirAll(filepath.Dir(string(m)), 0o700) != nil {
		return
	}
	// half of a number is one that the server's answer does not fit
	_ = os.WriteFile(string(m), []byte(strconv.Itoa(dimensions)), 0o600)
}

func (m dimensionMemory) forget() {
	if m != "" {
		_ = os.Remove(string(m))
	}
}
