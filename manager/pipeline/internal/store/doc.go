// Package store keeps runs of pipelines, and the messages between the parts of the pipeline
// service, in one SQL database: SQLite for one process, PostgreSQL for several.
//
// A change of a run and the messages that it causes are written in one transaction, so that
// neither exists without the other. A process claims messages for a time. If it dies, the
// claim ends and another process gets the message again: each message is handled at least
// once. A message that fails too often becomes a dead letter, which stays until an operator
// removes it.
//
//	s, err := store.Open(ctx, "/var/lib/dlite/pipelines.db")
//	err = s.Update(ctx, func(tx *store.Tx) error {
//		run, err := tx.Lock(account, id)
//		// change it
//		return errors.Join(tx.Save(run, nodes), tx.Send(messages...), tx.Done(message))
//	})
//
// Start reading at store.go.
package store
