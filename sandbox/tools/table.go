package tools

import (
	"encoding/json"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// tool ties a definition to what it does.
type tool struct {
	Definition
	run    runner
	key    string         // in the table; "" of a run's own tools
	schema map[string]any // Parameters, decoded
	stays  bool           // what does the work goes on in the sandbox after the call
}

// Arguments of several tools.
const (
	targetFile  = `"target_file":{"type":"string","description":"Path of the file, relative to the workspace or absolute."}`
	filePath    = `"file_path":{"type":"string","description":"Path of the file, relative to the workspace or absolute."}`
	commandLine = `"command":{"type":"string","description":"The command line."},` +
		`"is_background":{"type":"boolean","description":"Let the command go on, such as a server, and return at once."},` +
		`"explanation":{"type":"string","description":"Why the command is run."}`
)

// object is the schema of an object with these properties and no others.
func object(properties, required string) json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{` + properties + `},"required":[` + required +
		`],"additionalProperties":false}`)
}

// table has every tool once, by name.
var table = map[string]tool{
	"read_file": {Definition: Definition{
		Name:        "read_file",
		Description: "Read a text file of the workspace. The answer has lines of the form LINE|CONTENT, counted from 1. Long files are cut: use offset and limit.",
		ReadOnly:    true, Follows: FromWorkspace, Limits: Limits{AnswerBytes: MaxContent, Items: maxReadLines},
		Parameters: object(targetFile+`,"offset":{"type":"integer","minimum":1,"description":"First line to read."},`+
			`"limit":{"type":"integer","minimum":1,"description":"Number of lines to read."}`, `"target_file"`),
	}, run: decoded(readFile)},
	"search_replace": {Definition: Definition{
		Name:        "search_replace",
		Description: "Replace old_string by new_string in a file. old_string must occur exactly once, unless replace_all is true; give enough lines around it.",
		Destructive: true, Effect: OneFile, Limits: Limits{AnswerBytes: MaxContent},
		Parameters: object(filePath+
			`,"old_string":{"type":"string","description":"Exact text to replace, with its white space."},`+
			`"new_string":{"type":"string","description":"Text to put in its place."},`+
			`"replace_all":{"type":"boolean","description":"Replace every occurrence."}`,
			`"file_path","old_string","new_string"`),
	}, run: decoded(searchReplace)},
	"write": {Definition: Definition{
		Name:        "write",
		Description: "Write a file with the given contents. A file that is there is replaced; folders are made.",
		Destructive: true, Idempotent: true, Effect: OneFile, Limits: Limits{AnswerBytes: MaxContent},
		Parameters: object(filePath+`,"contents":{"type":"string","description":"The whole new content."}`,
			`"file_path","contents"`),
	}, run: decoded(writeFile)},
	"delete_file": {Definition: Definition{
		Name:        "delete_file",
		Description: "Delete a file. Folders, and files that are not there or may not be deleted, stay as they are, and the answer says why.",
		Destructive: true, Idempotent: true, Effect: OneFile, Limits: Limits{AnswerBytes: MaxContent},
		Parameters: object(targetFile+`,"explanation":{"type":"string","description":"Why the file is deleted."}`,
			`"target_file"`),
	}, run: decoded(deleteFile)},
	"grep": {Definition: Definition{
		Name: "grep",
		Description: "Search text files for an RE2 regular expression. Matches are shown as path:line:text, context as path-line-text. " +
			"Hidden files and binary files are passed over.",
		ReadOnly: true, Follows: FromWorkspace, Limits: Limits{AnswerBytes: MaxContent, Items: 5000,
			Time: 20 * time.Second},
		Parameters: object(`"pattern":{"type":"string","description":"Regular expression."},`+
			`"path":{"type":"string","description":"File or folder to search; the workspace by default."},`+
			`"glob":{"type":"string","description":"Only files whose path matches, such as *.go or src/**/*.{ts,tsx}."},`+
			`"output_mode":{"type":"string","enum":["content","files_with_matches","count"],"description":"What to show; content by default."},`+
			`"-A":{"type":"integer","minimum":0,"description":"Lines to show after each match."},`+
			`"-B":{"type":"integer","minimum":0,"description":"Lines to show before each match."},`+
			`"-C":{"type":"integer","minimum":0,"description":"Lines to show before and after each match."},`+
			`"-i":{"type":"boolean","description":"Ignore case."},`+
			`"type":{"type":"string","description":"Only files of this type: c, cpp, css, go, html, java, js, json, md, py, ruby, rust, sh, toml, ts, txt, yaml."},`+
			`"head_limit":{"type":"integer","minimum":1,"description":"Matches or files to show at most; 200 by default."},`+
			`"multiline":{"type":"boolean","description":"Let the expression match over line ends, and . match them."}`,
			`"pattern"`),
	}, run: decoded(grep)},
	"glob_file_search": {Definition: Definition{
		Name: "glob_file_search",
		Description: "Find files by their path, at any depth: *.go finds every Go file. The files that changed last come first. " +
			"Hidden files are passed over unless the pattern names them.",
		// Its order follows from times, which no workspace is known by.
		ReadOnly: true, Follows: FromSnapshot, Limits: Limits{AnswerBytes: MaxContent, Items: maxFound,
			Time: 20 * time.Second},
		Parameters: object(`"glob_pattern":{"type":"string","description":"Pattern such as *.go or src/**/*.{ts,tsx}; **/ is put in front of it."},`+
			`"target_directory":{"type":"string","description":"Folder to search; the workspace by default."}`,
			`"glob_pattern"`),
	}, run: decoded(globFileSearch)},
	"list_dir": {Definition: Definition{
		Name:        "list_dir",
		Description: "List a folder, one name a line, folders with a slash at the end. Hidden names are left out.",
		// Pipes and the like are seen, and are no part of a workspace.
		ReadOnly: true, Follows: FromFiles, Limits: Limits{AnswerBytes: MaxContent, Items: maxNames},
		Parameters: object(`"target_directory":{"type":"string","description":"Path of the folder, relative to the workspace or absolute."},`+
			`"ignore_globs":{"type":"array","items":{"type":"string"},"description":"Names to leave out, such as *.log."}`,
			`"target_directory"`),
	}, run: decoded(listDir)},
	SearchTool: {Definition: Definition{
		Name: SearchTool,
		Description: "Find code by meaning: ask a full question in words, such as \"Where are expired sessions removed?\". The answer holds the best parts of files, as " +
			"path:first-last and lines of the form LINE|CONTENT. Use grep for exact names and texts.",
		ReadOnly: true, Follows: FromWorkspace, Limits: Limits{AnswerBytes: MaxContent},
		Parameters: object(`"explanation":{"type":"string","description":"Why the search is made."},`+
			`"query":{"type":"string","description":"The question."},`+
			`"target_directories":{"type":"array","items":{"type":"string"},"maxItems":1,"description":"One folder to search in; all of the workspace by default."},`+
			`"search_only_prs":{"type":"boolean","description":"Search pull requests only; there are none here."}`,
			`"query"`),
	}, run: codebaseSearch},
	"run_terminal_cmd": {Definition: Definition{
		Name: "run_terminal_cmd",
		Description: "Run a shell command, without a terminal, network or input. The folder and the exported variables that it leaves are those of the next command. " +
			"The answer is its output, then its error output, then a line with its exit code. Processes that it leaves behind are ended, unless is_background is true.",
		Destructive: true, Limits: Limits{AnswerBytes: MaxContent, Time: sandbox.DefaultWall},
		Parameters: object(commandLine, `"command"`),
	}, run: decodedWork(continueShell)},
	newShellEachTime: {Definition: Definition{
		Name: "run_terminal_cmd",
		Description: "Run a shell command in a new shell in the workspace, without a terminal, network or input. The answer is its output, then its error output, " +
			"then a line with its exit code. Processes that it leaves behind are ended, unless is_background is true.",
		Destructive: true, Limits: Limits{AnswerBytes: MaxContent, Time: sandbox.DefaultWall},
		Parameters: object(commandLine, `"command"`),
	}, run: decodedWork(runTerminalCommand)},
	"read_lints": {Definition: Definition{
		Name: "read_lints",
		Description: "Check files with the linters and compilers that are installed here. The answer is a JSON object: linterErrorsByFile has the diagnostics of each file, " +
			"notChecked the files for which there is no linter, and it is empty where all was checked and nothing found.",
		// Linters read settings from outside of the workspace, too.
		ReadOnly: true, Follows: FromFiles, Limits: Limits{AnswerBytes: MaxContent,
			Items: maxDiagnostics, Time: lintTime},
		Parameters: object(`"paths":{"type":"array","items":{"type":"string"},"description":"Files or folders to check; the workspace by default."}`, ``),
	}, run: decoded(readLints)},
	"todo_write": {Definition: Definition{
		Name:        "todo_write",
		Description: "Keep a list of what is to be done. At most one entry may be in_progress. The answer is the list as it is then.",
		Idempotent:  true, Effect: Nothing, Limits: Limits{AnswerBytes: MaxContent, Items: maxTodos},
		Parameters: object(`"merge":{"type":"boolean","description":"Change and add the entries named, by id, and keep the others; otherwise the list is replaced."},`+
			`"todos":{"type":"array","items":{"type":"object","properties":{`+
			`"id":{"type":"string","description":"Name of the entry."},"content":{"type":"string","description":"What is to be done."},`+
			`"status":{"type":"string","enum":["pending","in_progress","completed","cancelled"]}},`+
			`"required":["id","content","status"],"additionalProperties":false}}`, `"merge","todos"`),
	}, run: decodedWork(todoWrite)},
}

// newShellEachTime is the key of the basic set's run_terminal_cmd, which has the same name.
const newShellEachTime = "run_terminal_cmd/" + toolset.Basic
