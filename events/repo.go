package events

import "github.com/rondo-rl/rondo/index"

// This file is about repositories whose code is indexed, so that agents can search it by meaning.
// The entity is the repository's name.

// RepoChanged says that a repository is not what it was. With Index, whoever states it has brought
// the store up to date; without, the updater that has the folder looks.
type RepoChanged struct {
	Index *index.State `json:"index,omitempty"`
}

// IndexUpdated says that a repository's index is another one, in the catalogue and in the runs
// that use the repository.
type IndexUpdated struct {
	Repo string `json:"repo"`
	index.State
}
