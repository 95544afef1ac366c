// Command rondo-sandbox-init is the first process of rondo's sandboxes as a program of its own. It
// is not needed: without it rondo starts itself again, which takes longer and more memory.
package main

import "github.com/rondo-rl/rondo/sandbox/first"

func main() { first.Main() }
