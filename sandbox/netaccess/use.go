package netaccess

import "github.com/rondo-rl/rondo/storage"

// MaxFetches bounds the requests that one use lists.
const MaxFetches = 20

// Use is what the sandbox's programs asked of the network since the turn before, by the proxy that
// is their only way to it.
type Use struct {
	Requests int `json:"requests"`
	// Refused is how many of them were not allowed, or went beyond a limit.
	Refused int `json:"refused,omitempty"`
	// Received and Sent are the bytes that programs in the sandbox got and gave,
	// without the proxy's own words.
	Received int64 `json:"received"`
	Sent     int64 `json:"sent"`
	// Fetches are the first requests, at most MaxFetches.
	Fetches []Fetch `json:"fetches,omitempty"`
	// All are all requests as JSON lines, where there were more than MaxFetches: at most
	// some ten thousand of them.
	All *storage.Ref `json:"all,omitempty"`
}

// Fetch is one request for something outside of the sandbox.
type Fetch struct {
	Method string `json:"method"`
	// URL is what was asked for, without user, password and query; of a tunnel, HOST:PORT; of a
	// package registry, its path as the sandbox sees it.
	URL    string `json:"url"`
	Status int    `json:"status,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"` // that the sandbox received
	// SHA256 is that of the answer, where the run keeps it.
	SHA256 string `json:"sha256,omitempty"`
	// Kept says that the answer came from what the run had fetched before.
	Kept bool `json:"kept,omitempty"`
	// Refused is why it was not allowed.
	Refused string `json:"refused,omitempty"`
}
