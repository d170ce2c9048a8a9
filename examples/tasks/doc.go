// Package tasks tests the standalone tasks in the directories below it. Each directory is a program
// that a delegate runs as a CGI task.
package tasks
