package tasks

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/rondo-rl/rondo/tasks/dockerfile"
)

// dockerized is sound with a Dockerfile and no named snapshot.
func dockerized(dockerfile string, more fstest.MapFS) fstest.MapFS {
	changes := fstest.MapFS{"t/task.toml": file(""), "t/environment/Dockerfile": file(dockerfile)}
	maps.Copy(changes, more)
	return with(changes)
}

func TestDockerfileSnapshot(t *testing.T) {
	more := fstest.MapFS{"t/environment/extra.txt": file("e"), "t/environment/repo/sub/f": file("f")}
	const repo = "README.md=hello\n|run.sh=#!/bin/sh\n|sub/f=f"
	cases := []struct {
		name, dockerfile, workdir, want string
	}{
		{"folder", "FROM x\nWORKDIR /app\nCOPY repo/ /app/\n", "/app", repo},
		{"folder without slashes", "FROM x\nWORKDIR /app\nCOPY repo /app\n", "/app", repo},
		{"relative destination", "FROM x\nWORKDIR /srv\nWORKDIR demo\nCOPY repo .\n", "/srv/demo", repo},
		{"the default workspace", "FROM x\nCOPY repo /app\n", "/app", repo},
		{"below the workspace", "FROM x\nWORKDIR /app\nCOPY repo/sub lib/\n", "/app", "lib/f=f"},
		{"a file", "FROM x\nWORKDIR /app\nCOPY extra.txt note.txt\n", "/app", "note.txt=e"},
		{"a file into a folder", "FROM x\nWORKDIR /app\nCOPY extra.txt ./\nADD repo/run.sh bin/\n", "/app",
			"bin/run.sh=#!/bin/sh\n|extra.txt=e"},
		{"a file onto a folder", "FROM x\nWORKDIR /app\nCOPY repo/sub d\nCOPY extra.txt d\n",
			"/app", "d/extra.txt=e|d/f=f"},
		{"two files", "FROM x\nWORKDIR /app\nCOPY extra.txt repo/run.sh /app/b\n", "/app",
			"b/extra.txt=e|b/run.sh=#!/bin/sh\n"},
		{"the later wins", "FROM x\nWORKDIR /app\nCOPY repo/run.sh a\nCOPY extra.txt a\n", "/app", "a=e"},
		{"JSON", "FROM x\nWORKDIR /app\nCOPY [\"repo/sub\", \"my lib\"]\n", "/app", "my lib/f=f"},
		{"quotes and variables",
			"FROM x\nARG where=/work\nENV SRC=\"repo/sub\"\nWORKDIR ${where}/space\nCOPY $SRC 'a b'\n",
			"/work/space", "a b/f=f"},
		{"continued and commented",
			"# syntax=x\nFROM x\n\nworkdir /app\ncopy --chown=1:1 --chmod=755 \\\n  # here\n\n  repo/sub \\\n  /app\nCMD [\"sh\"]\n", "/app", "f=f"},
		{"no-ops", "FROM x\nRUN mkdir -p /app/d && true\nRUN :\nWORKDIR /app\nCOPY repo/sub .\nUSER nobody\nEXPOSE 80\n", "/app", "f=f"},
		{"all", "FROM x\nWORKDIR /app\nCOPY . .\n", "/app",
			"Dockerfile=FROM x\nWORKDIR /app\nCOPY . .\n|extra.txt=e|repo/README.md=hello\n|repo/run.sh=#!/bin/sh\n|repo/sub/f=f"},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			loaded, err := LoadPack(dockerized(test.dockerfile, more))
			if err != nil {
				t.Fatal(err)
			}
			if task := loaded[0]; task.Workdir != test.workdir || contents(t, task.Snapshot) != test.want {
				t.Errorf("got %s with %q", task.Workdir, contents(t, task.Snapshot))
			}
		})
	}
}

// TestDockerfilesToBuild: what copying files cannot do takes the image, and the reason is kept.
func TestDockerfilesToBuild(t *testing.T) {
	more := fstest.MapFS{"t/environment/link": link("repo"), "t/environment/a.tar.gz": file("x"),
		"t/environment/f": file("x"), "t/environment/d/f/x": file("x")}
	cases := []struct{ name, dockerfile, want string }{
		{"a program to run", "FROM x\nRUN apt-get install -y git\nCOPY repo .\n", "line 2: RUN: this has to run"},
		{"hidden in a no-op", "FROM x\nRUN mkdir a; rm -rf b\n", "line 2: RUN"},
		{"mkdir with a mode", "FROM x\nRUN mkdir -m 0 a\n", "line 2: RUN"},
		{"folder over a file", "FROM x\nWORKDIR /app\nRUN mkdir -p a/b\nCOPY f ./\nCOPY f a/b\nCOPY f a\nCOPY d a/\n",
			"is a file and a folder"},
		{"redirected no-op", "FROM x\nRUN mkdir a > b\n", "line 2: RUN"},
		{"two stages", "FROM x\nFROM y\n", "line 2: FROM: a second FROM"},
		{"from a stage", "FROM x\nCOPY --from=b /a /app\n", "option --from is not supported"},
		{"pattern", "FROM x\nCOPY *.sh /app/\n", "patterns are not supported"},
		{"above", "FROM x\nCOPY ../solution /app/\n", "outside of environment/"},
		{"above, hidden", "FROM x\nCOPY repo/../../solution /app/\n", "outside of environment/"},
		{"not there", "FROM x\nCOPY nothing /app/\n", `line 2: source "nothing" is not in environment/`},
		{"a link", "FROM x\nCOPY link /app/\n", "is a symbolic link"},
		{"download", "FROM x\nADD https://example.org/x /app/\n", "nothing is downloaded"},
		{"archive", "FROM x\nADD a.tar.gz /app/\n", "archives are not unpacked"},
		{"outside of the workspace", "FROM x\nWORKDIR /app\nCOPY repo /etc\n",
			"copies to /etc, outside of the workspace /app"},
		{"beside the workspace", "FROM x\nWORKDIR /app\nCOPY repo /apple\n", "outside of the workspace"},
		{"escaping the workspace", "FROM x\nWORKDIR /app\nCOPY repo ../x\n", "outside of the workspace"},
		{"no copy", "FROM x\nWORKDIR /app\n", "copies nothing into the workspace"},
		{"destination missing", "FROM x\nCOPY repo\n", "want sources and a destination"},
		{"file and folder", "FROM x\nWORKDIR /app\nCOPY f a\nCOPY repo a/\n", "is a file and a folder"},
		{"folder and file", "FROM x\nWORKDIR /app\nCOPY d .\nCOPY f ./\n", "is a folder and a file"},
		{"unset variable", "FROM x\nWORKDIR $HOME\n", "variable HOME is not set"},
		{"odd variable", "FROM x\nWORKDIR ${HOME:-/app}\n", "only $NAME and ${NAME}"},
		{"open quote", "FROM x\nCOPY 'repo /app\n", "quote ' is not closed"},
		{"here-document", "FROM x\nCOPY <<EOF /app/f\nx\nEOF\n", "line 2: COPY with a here-document"},
		{"escape character", "# escape=`\nFROM x\n", "escape character"},
		{"unknown instruction", "FROM x\nINCLUDE y\n", "line 2: INCLUDE: not supported"},
		{"system workdir", "FROM x\nWORKDIR /usr/src/app\n", "line 2: WORKDIR"},
		{"two workdirs", "FROM x\nWORKDIR /a /b\n", "want one folder"},
		{"broken variable", "FROM x\nENV A-B=c\n", "want NAME=value"},
		{"growing variable", "FROM x\nENV A=" + strings.Repeat("x", 1000) + "\n" + strings.Repeat("ENV A=$A$A\n", 20),
			"more than"},
		{"growing tree", "FROM x\nWORKDIR /app\n" + strings.Repeat("COPY repo .\n", 501), "the limit is 500"},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			task := load1(t, dockerized(test.dockerfile, more))
			if len(task.Builds) != 1 || task.Image != task.Builds[0].Image || task.Snapshot != nil {
				t.Fatalf("image %q, builds %+v, snapshot %v", task.Image, task.Builds, task.Snapshot)
			}
			if b := task.Builds[0]; b.Field != "environment/Dockerfile" || !strings.Contains(b.Why, test.want) {
				t.Errorf("%s: %q lacks %q", b.Field, b.Why, test.want)
			}
		})
	}
}

func TestMadeFoldersAreThere(t *testing.T) {
	loaded, err := LoadPack(dockerized("FROM x\nWORKDIR /app\nRUN mkdir -p logs/old /var/x && true\nCOPY repo .\n",
		nil))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := fs.Stat(loaded[0].Snapshot, "logs/old"); err != nil || !info.IsDir() {
		t.Errorf("logs/old: %v, %v", info, err)
	}
}

func TestRepeatedCopiesAreCounted(t *testing.T) {
	more := fstest.MapFS{}
	for i := range 600 {
		more[fmt.Sprintf("t/environment/repo/many/%d", i)] = file("")
	}
	var dockerfile strings.Builder
	dockerfile.WriteString("FROM x\nWORKDIR /app\n")
	for i := range 200 {
		dockerfile.WriteString("COPY repo/many d" + strings.Repeat("i", i) + "\n")
	}
	task := load1(t, dockerized(dockerfile.String(), more))
	if len(task.Builds) != 1 || !strings.Contains(task.Builds[0].Why, "copies more than 100000 files") {
		t.Errorf("builds %+v", task.Builds)
	}
}

func TestNamedSnapshotNeedsNoBuild(t *testing.T) {
	pack := with(fstest.MapFS{"t/environment/Dockerfile": file("FROM a AS b\nRUN make\nFROM x\nWORKDIR /srv/x\nENV A=1 B=\"2 3\"\nENV C d  e\nENV PATH=/x:$PATH\nCOPY --from=b / /\n")})
	loaded, err := LoadPack(pack)
	if err != nil {
		t.Fatal(err)
	}
	task := loaded[0]
	if task.Workdir != "/srv/x" || !maps.Equal(task.Env,
		map[string]string{"A": "1", "B": "2 3", "C": "d e", "PATH": "/x:" + imagePath}) {
		t.Errorf("got %s, %v", task.Workdir, task.Env)
	}
}

// FuzzDockerfile holds the parser to what the rest relies on, whatever a pack
// brings: no panic, and an accepted Dockerfile reaches nothing outside of
// environment/ and the workspace.
func FuzzDockerfile(f *testing.F) {
	for _, seed := range []string{
		"FROM x\nWORKDIR /app\nCOPY repo/ /app/\n",
		"FROM x\nARG a=b\nENV A=$a B='${a}'\nCOPY --chown=1 [\"a\", \"b\"] \\\n c\nRUN mkdir -p x && true",
		"# escape=`\nADD . .",
		"COPY ./../a \"b c\"/ \\",
		"ENV A b\nWORKDIR ${A}/$A/../..\nCOPY / ..",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := dockerfile.Parse(text)
		for _, in := range list {
			if err != nil || in.Name == "" || in.Line < 1 || in.Args != strings.TrimSpace(in.Args) ||
				!utf8.ValidString(in.Args) {
				t.Fatalf("instruction %+v of %q (%v)", in, text, err)
			}
		}
		img, err := readImage(text, false)
		if err != nil {
			return
		}
		if img.workdir != "" && checkWorkdir(img.workdir) != nil {
			t.Fatalf("workdir %q", img.workdir)
		}
		for _, c := range img.copies {
			if path.IsAbs(c.source) || slices.Contains(strings.Split(c.source, "/"), "..") {
				t.Fatalf("source %q", c.source)
			}
			if !path.IsAbs(c.destination) || path.Clean(c.destination) != c.destination {
				t.Fatalf("destination %q", c.destination)
			}
		}
		for name := range img.env {
			if !dockerfile.ValidVariable.MatchString(name) {
				t.Fatalf("variable %q", name)
			}
		}
	})
}
