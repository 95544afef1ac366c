package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Each command that help shows has a page, with its examples.
func TestManualPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if out, err := rondo(t, "man", "--out", dir); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pages := 0
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() {
			return
		}
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		pages++
		for _, part := range []string{".TH", ".SH SYNOPSIS",
			map[bool]string{true: ".SH EXAMPLE", false: ""}[cmd.Example != ""]} {
			if !strings.Contains(string(page), part) {
				t.Errorf("the page of %s has no %s", cmd.CommandPath(), part)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(New())
	if pages < 60 {
		t.Errorf("%d pages", pages)
	}
}
