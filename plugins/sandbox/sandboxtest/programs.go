package sandboxtest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"time"
)

// listen is the program "listen": a small server.
func listen(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("listen: want a network and an address, got %q", args)
	}
	var config net.ListenConfig
	if args[0] == "udp" {
		c, err := config.ListenPacket(context.Background(), args[0], args[1])
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, c.LocalAddr())
		for b := make([]byte, 1<<16); ; {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return err
			}
			if _, err = c.WriteTo(b[:n], from); err != nil {
				return err
			}
		}
	}
	l, err := config.Listen(context.Background(), args[0], args[1])
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			for lines := bufio.NewReader(c); ; {
				line, err := lines.ReadBytes('\n')
				if _, failed := c.Write(line); failed != nil || err != nil {
					return
				}
			}
		}()
	}
}

// hold is the program "hold": it waits.
func hold(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("hold: want seconds, got %q", args)
	}
	d, err := time.ParseDuration(args[0] + "s")
	if err != nil {
		return err
	}
	time.Sleep(d)
	return nil
}
