// Package index is a library that keeps an index of source code, which agents and people search by
// meaning and by words. It needs nothing of the plane.
//
//   - Package update brings an index up to a folder or a snapshot: it reads, cuts and embeds only
//     what has changed, and asks it. Begin there.
//   - Package segment keeps indexes in an object store of package storage, and package seal seals
//     them: the store learns no name and no text.
//   - Package search ranks what an index has for a question, by the words of package words and by
//     the vectors of an embedder.
//   - Package embed has the built-in embedder. Another one is whatever has the three
//     methods of embed.Embedder.
//   - Packages source, ignore, merkle and chunk say which files are worth an index, find what has
//     changed, and cut files along declarations.
//
// All repositories of one key share their chunks and vectors, so that a second clone costs its
// difference only. An index is a function of the tree, the embedder and the key: how it came
// about changes no answer.
package index

// State says what the index of a repository holds, and what its last update did. Nothing in it
// tells a name or a text of the code.
type State struct {
	// Space is where the index is in the store: all repositories of one key share it.
	Space string `json:"space" jsonschema:"pattern=^[0-9a-f]{32}$"`
	// Root identifies the indexed tree, Base the one that was indexed before, "" for
	// the first. Both are keyed.
	Root string `json:"root" jsonschema:"pattern=^[0-9a-f]{32}$"`
	Base string `json:"base,omitempty" jsonschema:"pattern=^([0-9a-f]{32})?$"`
	// Generation grows by one with every update of the repository's index. It begins with
	// the time, in milliseconds since 1970, so that an index that is made anew comes
	// after the one that was there.
	Generation int64  `json:"generation" jsonschema:"minimum=1"`
	Embedder   string `json:"embedder" jsonschema:"minLength=1,maxLength=100"`
	Files      int    `json:"files" jsonschema:"minimum=0"`
	Chunks     int    `json:"chunks" jsonschema:"minimum=0"`
	// Chunks by the last update: with a vector that was computed for it, with one that
	// was there, and taken out.
	Added   int `json:"added" jsonschema:"minimum=0"`
	Reused  int `json:"reused" jsonschema:"minimum=0"`
	Removed int `json:"removed" jsonschema:"minimum=0"`
	// Skipped counts the entries of the tree that are not indexed, by reason; Secrets the
	// chunks that hold one, by rule.
	Skipped map[string]int `json:"skipped,omitempty"`
	Secrets map[string]int `json:"secrets,omitempty"`
}
