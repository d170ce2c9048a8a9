// Package docs has no code: its tests check README.md and the pages in docs.
//
//   - JSON blocks are valid JSON, and links lead to files and headings that exist.
//   - Shell blocks that are marked as runnable succeed, see run_test.go.
package docs
