// Package policy is the built-in policy: a log-linear program-repair agent, and the mathematics of
// its trainer. It needs no accelerator and no download, and it learns while one watches. Package
// endpoint serves it, and package trainer is the reference trainer.
//
// # What it does
//
// The policy knows nothing but the conversation. It folds the messages into a state (which files
// there are and what they say, which commands run tests, which changes were tried and what the
// tests said), and each turn it decides: look around, search, run the tests, try changes, make the
// best change for good, or finish. To try changes it picks a line, then one of the small changes
// that general mutation operators can make there, asks for the edit, a test run and the edit back,
// a few times in one turn. Every choice is drawn from a softmax over the candidates whose logits
// are linear in hashed features.
//
// # What it has to learn
//
// All weights begin at zero. The fixed part of the logits is a weak prior: it prefers to read files
// before it changes them, takes files named like tests for tests, and stops when the tests pass. It
// prefers changes of operators and numbers to those of names, and lines whose change altered the
// failing output. A rollout tries a part of a program's changes, so an untrained policy repairs
// some of the programs only. The operators reach what is wrong in the packs; see mutate.go. Learned
// are memories (this line, this change, this command) and traits (lines that the failing test
// mentions, lines whose change moved its output, kinds of operator), see features.go.
//
// # Tokens
//
// Text is bytes, and every decision is one action token in front of the line of text that states it
// (see tokens.go). The action token carries the log-probability of the decision; what follows from
// it has probability one. Because the action token is a hash of its line, a conversation that comes
// back as plain messages renders to the tokens that were sampled, and because the candidates follow
// from the conversation, the trainer recomputes every decision, its features and its probability
// under any weights from the tokens alone.
package policy
