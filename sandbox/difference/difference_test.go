package difference_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/difference"
)

// entry is a member of a change.
type entry struct {
	name, text string
	mode       int64
	link       string
	gone       bool
}

// change makes an archive as a sandbox gives it.
func change(t *testing.T, entries ...entry) sandbox.Source {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: max(e.mode, 0o644), Typeflag: tar.TypeReg,
			Size: int64(len(e.text)), Format: tar.FormatPAX}
		switch {
		case e.gone:
			h.PAXRecords = map[string]string{"RONDO.deleted": "1"}
		case e.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return sandbox.Bytes(b.Bytes())
}

func snapshot(t *testing.T) sandbox.Source {
	t.Helper()
	var b bytes.Buffer
	err := sandbox.PackTo(&b, fstest.MapFS{
		"main.go": {Data: []byte("one\ntwo\nthree\n"), Mode: 0o644}, "gone.txt": {Data: []byte("bye\n"), Mode: 0o644},
		"dir/inner.txt": {Data: []byte("in\n"), Mode: 0o644},
	})
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Bytes(b.Bytes())
}

var bounds = difference.Bounds{Files: 100, Bytes: 1 << 10, Lines: 100}

// said writes a difference down.
func said(files []difference.File) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "%s %s (%s)\n", f.What, f.Name, f.Note)
		for _, l := range f.Lines {
			fmt.Fprintf(&b, "%c%s\n", l.Mark, l.Text)
		}
	}
	return b.String()
}

// TestBetween: what a turn did is told by what the workspace was before it, be that in the
// change or in the snapshot.
func TestBetween(t *testing.T) {
	edited := entry{name: "main.go", text: "one\n2\nthree\n"}
	for name, c := range map[string]struct {
		before, after []entry
		want          string
	}{
		"nothing":    {nil, nil, ""},
		"the same":   {[]entry{edited}, []entry{edited}, ""},
		"an edit":    {nil, []entry{edited}, "changed main.go ()\n@@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"},
		"taken back": {[]entry{edited}, nil, "changed main.go ()\n@@@ -1,3 +1,3 @@\n one\n-2\n+two\n three\n"},
		"edited again": {[]entry{edited}, []entry{{name: "main.go", text: "one\n2\n"}},
			"changed main.go ()\n@@@ -1,3 +1,2 @@\n one\n 2\n-three\n"},
		"a new file":    {nil, []entry{{name: "new", text: "x\n"}}, "added new ()\n@@@ -0,0 +1 @@\n+x\n"},
		"a new program": {nil, []entry{{name: "run", mode: 0o755}}, "added run (mode 755)\n"},
		"made executable": {nil, []entry{{name: "main.go", text: "one\ntwo\nthree\n", mode: 0o755}},
			"changed main.go (mode 644, now 755)\n"},
		"deleted": {nil, []entry{{name: "gone.txt", gone: true}},
			"deleted gone.txt ()\n@@@ -1 +0,0 @@\n-bye\n"},
		"brought back": {[]entry{{name: "gone.txt", gone: true}}, nil,
			"added gone.txt ()\n@@@ -0,0 +1 @@\n+bye\n"},
		"a new file goes": {[]entry{{name: "new", text: "x\n"}}, nil, "deleted new ()\n@@@ -1 +0,0 @@\n-x\n"},
		"a link":          {nil, []entry{{name: "l", link: "main.go"}}, "added l (a link to main.go)\n"},
		"a file is a link": {nil, []entry{{name: "gone.txt", link: "main.go"}},
			"changed gone.txt (a file became a link to main.go)\n@@@ -1 +0,0 @@\n-bye\n"},
		"binary": {nil, []entry{{name: "main.go", text: "a\x00b"}},
			"changed main.go (14 and now 3 bytes, not shown as text)\n"},
		"long": {nil, []entry{{name: "new", text: strings.Repeat("x", 2000)}},
			"added new (2000 bytes, not shown as text)\n"},
		"a folder is no more": {[]entry{{name: "dir", gone: true}},
			[]entry{{name: "dir/"}, {name: "dir/inner.txt", text: "now\n"}},
			"added dir (a folder)\nadded dir/inner.txt ()\n@@@ -0,0 +1 @@\n+now\n"},
		"no newline": {nil, []entry{{name: "gone.txt", text: "bye"}},
			"changed gone.txt ()\n@@@ -1 +1 @@\n-bye\n+bye\n@\\ No newline at end of file\n"},
	} {
		t.Run(name, func(t *testing.T) {
			files, more, err := difference.Compare(snapshot(t), change(t, c.before...), change(t, c.after...), bounds)
			if err != nil || more != 0 {
				t.Fatal(more, err)
			}
			if got := said(files); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

// TestBounds: however much differs, a bounded part of it is shown, and the rest counted.
func TestBounds(t *testing.T) {
	var entries []entry
	for i := range 300 {
		entries = append(entries, entry{name: fmt.Sprintf("f%03d", i), text: strings.Repeat("line\n", 200)})
	}
	files, more, err := difference.Compare(snapshot(t), nil, change(t, entries...), bounds)
	if err != nil || len(files) != 100 || more != 200 {
		t.Fatalf("%d files, %d more, %v", len(files), more, err)
	}
	if f := files[0]; len(f.Lines) != 100 || f.More != 101 {
		t.Errorf("%d lines, %d more", len(f.Lines), f.More)
	}
}

// TestHostileArchives are refused.
func TestHostileArchives(t *testing.T) {
	for name, e := range map[string]entry{"a way out": {name: "../x"}, "the root": {name: "/x"}} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := difference.Compare(nil, nil, change(t, e), bounds); err == nil {
				t.Error("it was taken")
			}
		})
	}
	if _, _, err := difference.Compare(nil, sandbox.Bytes([]byte("garbage, and more of it")), nil, bounds); err == nil {
		t.Error("garbage was taken")
	}
}
