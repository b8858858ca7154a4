// A member of a consumer group for ../groups: franz member HOST:PORT key=value...   (see ../python/member.py)
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type ownership struct {
	sync.Mutex
	has map[string]bool
}

// changed takes partitions in or out and prints what there is now.
func (o *ownership) changed(partitions map[string][]int32, in bool) {
	o.Lock()
	defer o.Unlock()
	for topic, numbers := range partitions {
		for _, p := range numbers {
			name := fmt.Sprintf("%s:%d", topic, p)
			if in {
				o.has[name] = true
			} else {
				delete(o.has, name)
			}
		}
	}
	var all []string
	for name := range o.has {
		all = append(all, name)
	}
	sort.Strings(all)
	fmt.Println("assigned", strings.Join(all, " "))
}

func memberOptions(given map[string]string, own *ownership) []kgo.Opt {
	ms := func(key string, otherwise int) time.Duration {
		if n, err := strconv.Atoi(given[key]); err == nil {
			otherwise = n
		}
		return time.Duration(otherwise) * time.Millisecond
	}
	balancers := map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
		"sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer()}
	lost := func(_ context.Context, _ *kgo.Client, p map[string][]int32) { own.changed(p, false) }
	revoked := func(ctx context.Context, c *kgo.Client, p map[string][]int32) {
		commit(ctx, c)
		own.changed(p, false)
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(given["group"]), kgo.Balancers(balancers[given["assignor"]]), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(ms("session", 2000)), kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.MetadataMaxAge(ms("metadata", 300000)), kgo.MetadataMinAge(100 * time.Millisecond), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { own.changed(p, true) }),
		kgo.OnPartitionsRevoked(revoked), kgo.OnPartitionsLost(lost),
	}
	if instance := given["instance"]; instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	if pattern := given["pattern"]; pattern != "" {
		return append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics(pattern))
	}
	return append(options, kgo.ConsumeTopics(strings.Split(given["topics"], ",")...))
}

// commit says whether all that was polled is committed. During a rebalance it may be refused; it is tried again after the next poll.
func commit(ctx context.Context, c *kgo.Client) bool {
	err := c.CommitUncommittedOffsets(ctx)
	if err != nil {
		fmt.Println("note commit:", err)
	}
	return err == nil
}

func member(args []string) {
	given := map[string]string{}
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		given[key] = value
	}
	own := &ownership{has: map[string]bool{}}
	c, err := client(memberOptions(given, own)...)
	fail(err)
	leave := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() && lines.Text() == "leave" {
			close(leave)
			return
		}
		os.Exit(1)
	}()
	committed := true
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		records := c.PollRecords(ctx, 100).Records()
		cancel()
		for _, r := range records {
			fmt.Println("read", r.Topic, r.Partition, r.Offset)
		}
		if len(records) > 0 || !committed {
			committed = commit(context.Background(), c)
		}
		c.AllowRebalance()
		select {
		case <-leave:
			// Close waits for a rebalance that is under way, and leaves the group.
			c.CloseAllowingRebalance()
			fmt.Println("left")
			return
		default:
		}
	}
}
