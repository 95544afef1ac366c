package cli

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tables come from app.Table alone, so that they look alike.
func TestTablesAreMadeInOnePlace(t *testing.T) {
	looked := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || path == "tables_test.go" {
			return err
		}
		text, err := os.ReadFile(path)
		if looked++; bytes.Contains(text, []byte(`"text/tabwriter"`)) {
			t.Errorf("%s makes a table of its own: use app.NewTable or app.NewColumns", path)
		}
		return err
	})
	if err != nil || looked < 100 {
		t.Errorf("%d files: %v", looked, err)
	}
}
