// Package tools is the set of tools that an agent works with in a sandbox: what each is called, takes and answers, and its
// execution. Nothing that a model writes is an error of Go: a call that makes no sense is answered by an observation that says why.
package tools

import "encoding/json"

// Definition describes a tool as chat endpoints take it; Parameters is a JSON Schema of the arguments.
type Definition struct {
	Name        string
	Description string
	Parameters  json.RawMessage
	// ReadOnly tools change nothing and may run at the same time.
	ReadOnly bool
}

// Definitions lists the tools, in a fixed order, as it is part of every prompt; with search, codebase_search is one of them.
func Definitions(search bool) []Definition {
	list := make([]Definition, 0, len(registry)+1)
	for _, t := range offered(search) {
		list = append(list, Definition{Name: t.name, Description: t.description, Parameters: json.RawMessage(t.parameters), ReadOnly: t.readOnly})
	}
	return list
}

// tool ties a definition to what it does.
type tool struct {
	name, description, parameters string
	readOnly                      bool
	run                           runner
}

// offered are the tools that a run's agents have.
func offered(search bool) []tool {
	if search {
		return append(registry[:len(registry):len(registry)], codebaseSearch)
	}
	return registry
}

var codebaseSearch = tool{
	name: SearchTool,
	description: "Find code by meaning: ask a full question in words, such as \"Where are expired sessions removed?\". The answer holds the best parts of files, as " +
		"path:first-last and lines of the form LINE|CONTENT. Use grep for exact names and texts.",
	readOnly: true,
	parameters: `{"type":"object","properties":{` +
		`"explanation":{"type":"string","description":"Why the search is made."},` +
		`"query":{"type":"string","description":"The question."},` +
		`"target_directories":{"type":"array","items":{"type":"string"},"maxItems":1,"description":"One folder to search in; all of the workspace by default."},` +
		`"search_only_prs":{"type":"boolean","description":"Search pull requests only; there are none here."}},` +
		`"required":["query"],"additionalProperties":false}`,
}

var registry = []tool{
	{
		name:        "read_file",
		description: "Read a text file of the workspace. The answer has lines of the form LINE|CONTENT, counted from 1. Long files are cut: use offset and limit.",
		readOnly:    true,
		run:         decoded(readFile),
		parameters: `{"type":"object","properties":{` +
			`"target_file":{"type":"string","description":"Path of the file, relative to the workspace or absolute."},` +
			`"offset":{"type":"integer","minimum":1,"description":"First line to read."},` +
			`"limit":{"type":"integer","minimum":1,"description":"Number of lines to read."}},` +
			`"required":["target_file"],"additionalProperties":false}`,
	},
	{
		name:        "search_replace",
		description: "Replace old_string by new_string in a file. old_string must occur exactly once, unless replace_all is true; give enough lines around it.",
		run:         decoded(searchReplace),
		parameters: `{"type":"object","properties":{` +
			`"file_path":{"type":"string","description":"Path of the file, relative to the workspace or absolute."},` +
			`"old_string":{"type":"string","description":"Exact text to replace, with its white space."},` +
			`"new_string":{"type":"string","description":"Text to put in its place."},` +
			`"replace_all":{"type":"boolean","description":"Replace every occurrence."}},` +
			`"required":["file_path","old_string","new_string"],"additionalProperties":false}`,
	},
	{
		name:        "write",
		description: "Write a file with the given contents. A file that is there is replaced; folders are made.",
		run:         decoded(writeFile),
		parameters: `{"type":"object","properties":{` +
			`"file_path":{"type":"string","description":"Path of the file, relative to the workspace or absolute."},` +
			`"contents":{"type":"string","description":"The whole new content."}},` +
			`"required":["file_path","contents"],"additionalProperties":false}`,
	},
	{
		name: "grep",
		description: "Search text files for an RE2 regular expression. Matches are shown as path:line:text, context as path-line-text. " +
			"Hidden files and binary files are passed over.",
		readOnly: true,
		run:      decoded(grep),
		parameters: `{"type":"object","properties":{` +
			`"pattern":{"type":"string","description":"Regular expression."},` +
			`"path":{"type":"string","description":"File or folder to search; the workspace by default."},` +
			`"glob":{"type":"string","description":"Only files whose path matches, such as *.go or src/**/*.{ts,tsx}."},` +
			`"output_mode":{"type":"string","enum":["content","files_with_matches","count"],"description":"What to show; content by default."},` +
			`"-A":{"type":"integer","minimum":0,"description":"Lines to show after each match."},` +
			`"-B":{"type":"integer","minimum":0,"description":"Lines to show before each match."},` +
			`"-C":{"type":"integer","minimum":0,"description":"Lines to show before and after each match."},` +
			`"-i":{"type":"boolean","description":"Ignore case."},` +
			`"type":{"type":"string","description":"Only files of this type: c, cpp, css, go, html, java, js, json, md, py, ruby, rust, sh, toml, ts, txt, yaml."},` +
			`"head_limit":{"type":"integer","minimum":1,"description":"Matches or files to show at most; 200 by default."},` +
			`"multiline":{"type":"boolean","description":"Let the expression match over line ends, and . match them."}},` +
			`"required":["pattern"],"additionalProperties":false}`,
	},
	{
		name:        "list_dir",
		description: "List a folder, one name a line, folders with a slash at the end. Hidden names are left out.",
		readOnly:    true,
		run:         decoded(listDir),
		parameters: `{"type":"object","properties":{` +
			`"target_directory":{"type":"string","description":"Path of the folder, relative to the workspace or absolute."},` +
			`"ignore_globs":{"type":"array","items":{"type":"string"},"description":"Names to leave out, such as *.log."}},` +
			`"required":["target_directory"],"additionalProperties":false}`,
	},
	{
		name: "run_terminal_cmd",
		description: "Run a shell command in a new shell in the workspace, without a terminal, network or input. The answer is its output, then its error output, " +
			"then a line with its exit code. Processes that it leaves behind are ended, unless is_background is true.",
		run: decoded(runTerminalCommand),
		parameters: `{"type":"object","properties":{` +
			`"command":{"type":"string","description":"The command line."},` +
			`"is_background":{"type":"boolean","description":"Let the command go on, such as a server, and return at once."},` +
			`"explanation":{"type":"string","description":"Why the command is run."}},` +
			`"required":["command"],"additionalProperties":false}`,
	},
}
