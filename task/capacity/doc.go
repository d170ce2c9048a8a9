// Package capacity counts what a delegate can take: [Slots] bounds the stages
// between init and cleanup, [Thresholds] refuses new ones while the host is
// busy.
//
//	slots := capacity.NewSlots(2)
//	slot, ok := slots.Take()  // the poller, before it acquires an init task
//	slot.Keep()               // the transaction that the init opened
//	slot.Release()            // the same transaction, when its cleanup is done
package capacity
