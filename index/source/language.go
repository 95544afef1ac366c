// Package source says what a file of a repository is: in which language, and whether it
// is worth an index's while.
package source

import (
	"bytes"
	"path"
	"strings"
)

// Language is what a chunker needs to know of a file. The zero value is text in lines.
type Language uint8

// Languages whose structure is known, and Text for all others.
const (
	Text Language = iota
	Go
	Python
	JavaScript // and TypeScript, with JSX
	Java       // and those of its lexical kind: Kotlin, Scala, C#, Swift, Dart, Groovy
	C          // and C++, Objective-C, CUDA, GLSL
	Rust
	Shell
	PHP
	Ruby
	CSS // with SCSS and Less
	Markdown
)

var byExtension = map[string]Language{
	"go": Go,
	"py": Python, "pyi": Python, "pyx": Python, "pxd": Python, "bzl": Python, "star": Python,
	"js": JavaScript, "mjs": JavaScript, "cjs": JavaScript, "jsx": JavaScript, "ts": JavaScript, "mts": JavaScript,
	"cts": JavaScript, "tsx": JavaScript,
	"java": Java, "kt": Java, "kts": Java, "scala": Java, "cs": Java, "swift": Java, "dart": Java, "groovy": Java,
	"gradle": Java, "proto": Java,
	"c": C, "h": C, "cc": C, "cpp": C, "cxx": C, "hh": C, "hpp": C, "hxx": C, "inl": C, "m": C, "mm": C,
	"cu": C, "cuh": C, "glsl": C,
	"rs": Rust,
	"sh": Shell, "bash": Shell, "zsh": Shell, "ksh": Shell, "bats": Shell,
	"php": PHP,
	"rb":  Ruby, "rake": Ruby, "gemspec": Ruby,
	"css": CSS, "scss": CSS, "less": CSS,
	"md": Markdown, "markdown": Markdown, "mdx": Markdown, "qmd": Markdown,
}

var byName = map[string]Language{
	"BUILD": Python, "BUILD.bazel": Python, "WORKSPACE": Python, "SConstruct": Python, "Tiltfile": Python,
	"Rakefile": Ruby, "Gemfile": Ruby, "Vagrantfile": Ruby, "Jenkinsfile": Java,
	".bashrc": Shell, ".profile": Shell, ".zshrc": Shell, "PKGBUILD": Shell,
}

// byInterpreter is keyed by the beginning of an interpreter's name: python3.12 is python.
var byInterpreter = []struct {
	name     string
	language Language
}{
	{"python", Python}, {"node", JavaScript}, {"deno", JavaScript}, {"bun", JavaScript}, {"bash", Shell},
	{"sh", Shell}, {"dash", Shell},
	{"zsh", Shell}, {"ksh", Shell}, {"ruby", Ruby}, {"php", PHP},
}

// LanguageOf goes by a file's name, and by its first line where the name says nothing.
func LanguageOf(name string, content []byte) Language {
	base := path.Base(name)
	if l, ok := byName[base]; ok {
		return l
	}
	if dot := strings.LastIndexByte(base, '.'); dot > 0 {
		return byExtension[strings.ToLower(base[dot+1:])]
	}
	return byShebang(content)
}

func byShebang(content []byte) Language {
	rest, ok := bytes.CutPrefix(content[:min(len(content), 256)], []byte("#!"))
	if !ok {
		return Text
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) > 0 && path.Base(fields[0]) == "env" {
		fields = fields[1:]
		for len(fields) > 0 && (strings.HasPrefix(fields[0], "-") || strings.Contains(fields[0], "=")) {
			fields = fields[1:]
		}
	}
	if len(fields) == 0 {
		return Text
	}
	for _, i := range byInterpreter {
		if rest, ok := strings.CutPrefix(path.Base(fields[0]), i.name); ok && strings.Trim(rest, "0123456789.") == "" {
			return i.language
		}
	}
	return Text
}
