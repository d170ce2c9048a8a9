// Package capacity limits the stages of a delegate: [Slots] limits the number of
// stages between init and cleanup, and [Thresholds] refuses new stages while the
// host is busy.
//
//	slots := capacity.NewSlots(2)
//	slot, ok := slots.Take()  // the poller, before it acquires an init task
//	slot.Keep()               // the transaction that the init opened
//	slot.Release()            // the same transaction, after its cleanup
//
// Start reading at slots.go.
package capacity
